"""Cuts documents into passages by words: whole sentences, without a vocabulary."""

import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import regex

from realm_jax.corpus import chunking
from realm_jax.corpus.documents import Document
from realm_jax.corpus.sentences import sentence_spans, to_byte_offsets
from realm_jax.text import scripts
from realm_jax.text.words import segments

# What is no word, such as a long address, counts as several.
_RUN = regex.compile(rf"(?P<unspaced>[{scripts.UNSPACED}]+)|[^\s{scripts.UNSPACED}]{{1,50}}")
_ASCII_WORD = re.compile(r"\S{1,50}")  # the same, several times as fast


def cutter(*, words: int) -> Callable[[Document, str], list[str]]:
  """Returns a function that cuts a document into passages of about so many words.

  Args:
    words: The most words of a passage.

  Returns:
    A function of a document and its language, which decides where sentences end.
  """
  room = chunking.SPECIAL_TOKENS_PER_PASSAGE
  config = chunking.ChunkingConfig(max_passage_length=words + room)

  def cut(document: Document, language: str) -> list[str]:
    text, raw = document.text, document.text.encode()
    sentences = [
      _with_words(raw[start:limit].decode(), start, most=words)
      for start, limit in sentence_spans(text, language=language)
    ]
    chunks = chunking.chunk_sentences(sentences, title_length=0, config=config, counts=Counter())
    # A title alone is found as well.
    return [raw[chunk.start : chunk.limit].decode() for chunk in chunks] or [""]

  return cut


def _with_words(text: str, start: int, *, most: int) -> chunking.TokenizedSentence:
  """Returns a sentence, with the places of its words only if it has to be split."""
  if text.isascii():
    count = len(_ASCII_WORD.findall(text))
    spans = [match.span() for match in _ASCII_WORD.finditer(text)] if count > most else []
  else:
    spans = [span for run in _RUN.finditer(text) for span in _word_spans(run)]
    count = len(spans)
  spans = to_byte_offsets(text, spans if count > most else [])
  borders = np.array(spans, np.int64).reshape(-1, 2)
  return chunking.TokenizedSentence(
    start=start,
    limit=start + len(text.encode()),
    ids=np.zeros(count, np.int32),
    starts=borders[:, 0],
    limits=borders[:, 1],
  )


def _word_spans(run: regex.Match) -> list[tuple[int, int]]:
  if run.lastgroup != "unspaced":
    return [run.span()]
  return [(run.start() + a, run.start() + b) for a, b in segments(run[0])]
