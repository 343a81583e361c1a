"""How documents become passages: whole sentences, or parts of one that is too long."""

import bisect
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import regex

from realm_jax.corpus import chunking, limits
from realm_jax.corpus.documents import Document
from realm_jax.text.languages import UNSPACED
from realm_jax.text.segmentation import segments, sentence_spans, to_byte_offsets

# What is no word, such as a long address, counts as several.
_RUN = regex.compile(rf"(?P<unspaced>[{UNSPACED}]+)|[^\s{UNSPACED}]{{1,50}}")
_SPACED_WORD = re.compile(r"\S{1,50}")  # the same, several times as fast
_UNSPACED = regex.compile(f"[{UNSPACED}]")
_SHORT = 10  # characters a word of a document that may be one passage


def beginning(document: Document) -> str:
  """Returns the title of a document, or its text if it has none that tells something."""
  name = os.path.splitext(os.path.basename(document.id))[0]
  is_name = document.title == name and document.text  # which tells nothing
  return document.text if is_name else document.title or document.text


class Passage(NamedTuple):
  """A part of a document.

  Attributes:
    gap: What stands before it, after the passage before.
    page: Where it begins; 0 if there are no pages.
    heading: The nearest one.
  """

  text: str
  gap: str = ""
  page: int = 0
  heading: str = ""


def cutter(*, words: int) -> Callable[[Document, str], list[Passage]]:
  """Returns a function that cuts a document into passages of about so many words.

  Returns:
    A function of a document and its language, which decides where sentences end.
  """
  room = chunking.SPECIAL_TOKENS_PER_PASSAGE
  config = chunking.ChunkingConfig(max_passage_length=words + room)

  def cut(document: Document, language: str) -> list[Passage]:
    text, raw = document.text, document.text.encode()
    if len(text) <= _SHORT * words and _num_words(text) <= words:
      start = len(raw) - len(raw.lstrip())
      return _placed(document, raw, [(start, start + len(text.strip().encode()))])
    sentences = [
      _with_words(raw[start:limit].decode(), start, most=words)
      for start, limit in sentence_spans(text, language=language)
    ]
    chunks = chunking.chunk_sentences(sentences, title_length=0, config=config, counts=Counter())
    # A title alone is found as well.
    return _placed(document, raw, [(chunk.start, chunk.limit) for chunk in chunks] or [(0, 0)])

  return cut


def _placed(document: Document, raw: bytes, spans: Sequence[tuple[int, int]]) -> list[Passage]:
  """Returns the passages at some places in the bytes of a document's text."""
  marks = document.outline
  places = to_byte_offsets(document.text, [(mark.start, mark.start) for mark in marks])
  passages, end = [], 0
  for start, limit in spans:
    number = bisect.bisect_right(places, (start, start)) - 1
    page, heading = marks[number][1:] if number >= 0 else (0, "")
    passages.append(Passage(raw[start:limit].decode(), raw[end:start].decode(), page, heading))
    end = limit
  return passages


def _with_words(text: str, start: int, *, most: int) -> chunking.TokenizedSentence:
  """Returns a sentence, with the places of its words only if it has to be split."""
  count = _num_words(text)
  spans = to_byte_offsets(text, _word_spans(text) if count > most else [])
  borders = np.array(spans, np.int64).reshape(-1, 2)
  return chunking.TokenizedSentence(
    start=start,
    limit=start + len(text.encode()),
    ids=np.zeros(count, np.int32),
    starts=borders[:, 0],
    limits=borders[:, 1],
  )


def _num_words(text: str) -> int:
  is_spaced = text.isascii() or not _UNSPACED.search(text)
  return len(_SPACED_WORD.findall(text) if is_spaced else _word_spans(text))


def _word_spans(text: str) -> list[tuple[int, int]]:
  spans = []
  for run in _RUN.finditer(text):
    inner = segments(run[0]) if run.lastgroup == "unspaced" else [(0, len(run[0]))]
    spans += [(run.start() + a, run.start() + b) for a, b in inner]
  return spans


def searched_titles(
  titles: Iterable[str], counts: Iterable[int], headings: Iterable[str], texts: Iterable[str]
) -> Iterator[str]:
  """Yields what is searched with the texts of passages: their titles and headings.

  All of a title is searched with the first passage of its document, and no more than its beginning
  with the others, which would otherwise cost the product of their lengths.
  """
  titles_N: list[str] = []
  for title, count in zip(titles, counts, strict=True):
    beginning = title[: limits.REPEATED_TITLE]
    if len(title) > len(beginning):
      beginning = beginning.rpartition(" ")[0] or beginning
    titles_N += [title, *itertools.repeat(beginning, count - 1)]
  for title, heading, text in zip(titles_N, headings, texts, strict=True):
    is_there = heading in ("", title) or text.startswith(heading)
    yield title if is_there else titled(title, heading)


def titled(title: str, text: str) -> str:
  """Returns the title and text of a passage, which are searched together."""
  return f"{title}\n{text}"
