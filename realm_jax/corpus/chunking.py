"""Cuts documents into passages, with wordpieces, sentence boundaries and salient spans.

A passage is as many whole sentences as fit, or a fixed number of words. As in the original system
(`preprocess_wiki_extractor`), the title and three special tokens count against the budget, the
title is stored separately, and passages never cross documents nor, by default, overlap. Unlike the
original, a sentence that exceeds the budget is split between wordpieces rather than truncated
later, and a passage keeps the raw text between its sentences. Passages of a fixed number of words
follow Karpukhin et al. 2020 (DPR), who used 100.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from realm_jax.corpus.documents import Document
from realm_jax.corpus.passage_store import (
  BODY_SHARE,
  SPECIAL_TOKENS_PER_PASSAGE,
  Passage,
  passage_uid,
)
from realm_jax.foundations import choices
from realm_jax.text.languages import language_of
from realm_jax.text.segmentation import sentence_spans


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChunkingConfig(choices.Checked):
  """How documents are cut into passages.

  Attributes:
    unit: "sentences" packs as many as fit, "words" takes a fixed number.
    max_passage_length: Maximum wordpieces of title, body and three special tokens together.
    max_sentences: Maximum sentences per passage; None packs as many as fit.
    num_words: Words per passage if `unit` is "words".
    overlap: Sentences or words at the end of a passage that the next one repeats, if they fit.
  """

  unit: Literal["sentences", "words"] = "sentences"
  max_passage_length: choices.PassageLength = 288
  max_sentences: choices.Count | None = None
  num_words: choices.Count = 100
  overlap: choices.CountOrZero = 0

  def __post_init__(self):
    super().__post_init__()
    size = self.num_words if self.unit == "words" else self.max_sentences
    if size is not None and self.overlap >= size:
      raise ValueError(f"overlap={self.overlap}; use less than the {size} {self.unit} of a passage")


class TokenizedSentence(NamedTuple):
  """A sentence of a document; a tuple, because there are many.

  Attributes:
    start: First byte.
    limit: Byte after the last.
    ids: int32 wordpiece ids.
    starts: First byte of each wordpiece, counted from `start`.
    limits: Byte after each wordpiece, counted from `start`.
  """

  start: int
  limit: int
  ids: np.ndarray
  starts: np.ndarray
  limits: np.ndarray


@dataclasses.dataclass(frozen=True)
class Chunk:
  """Consecutive sentences, whole or in part, that form the body of a passage."""

  sentences: tuple[TokenizedSentence, ...]

  @property
  def start(self) -> int:
    return self.sentences[0].start

  @property
  def limit(self) -> int:
    return self.sentences[-1].limit

  @property
  def ids(self) -> np.ndarray:
    return np.concatenate([sentence.ids for sentence in self.sentences])


def split_sentence(sentence: TokenizedSentence, *, budget: int) -> Iterator[TokenizedSentence]:
  """Yields pieces of at most `budget` wordpieces, cut between words where possible."""
  first = 0
  total = len(sentence.ids)
  while first < total:
    end = min(first + budget, total)
    if end < total:
      # A wordpiece that starts where the previous one ends belongs to the same word.
      border = end
      while border > first + budget // 2 and sentence.starts[border] == sentence.limits[border - 1]:
        border -= 1
      if border > first + budget // 2:
        end = border
    yield _part(sentence, first, end)
    first = end


def chunk_sentences(
  sentences: Sequence[TokenizedSentence],
  *,
  title_length: int,
  config: ChunkingConfig,
  counts: Counter,
) -> list[Chunk]:
  """Cuts the sentences of one document into chunks.

  Args:
    title_length: Wordpieces of the title.
    counts: Updated with `long_sentences_split`, `long_word_passages_split` and `long_titles`.

  Returns:
    Chunks that, without their overlaps, concatenate to the wordpieces of all sentences.
  """
  budget = config.max_passage_length - SPECIAL_TOKENS_PER_PASSAGE - title_length
  if budget < config.max_passage_length // BODY_SHARE:
    # If the title leaves too little room, the encoder's input truncates the title, not the body.
    counts["long_titles"] += 1
    budget = config.max_passage_length // BODY_SHARE
  sentences = [sentence for sentence in sentences if len(sentence.ids)]
  pack = _pack_words if config.unit == "words" else _pack_sentences
  return pack(sentences, budget, config, counts)


def _pack_sentences(sentences, budget, config, counts) -> list[Chunk]:
  chunks: list[Chunk] = []
  current: list[TokenizedSentence] = []
  used = 0
  for sentence in sentences:
    pieces = [sentence]
    if len(sentence.ids) > budget:
      counts["long_sentences_split"] += 1
      pieces = split_sentence(sentence, budget=budget)
    for piece in pieces:
      if current and (used + len(piece.ids) > budget or len(current) == config.max_sentences):
        chunks.append(Chunk(tuple(current)))
        current = current[-config.overlap :] if config.overlap else []
        while current and sum(len(s.ids) for s in current) + len(piece.ids) > budget:
          del current[0]
        used = sum(len(s.ids) for s in current)
      current.append(piece)
      used += len(piece.ids)
  if current:
    chunks.append(Chunk(tuple(current)))
  return chunks


def _pack_words(sentences, budget, config, counts) -> list[Chunk]:
  if not sentences:
    return []
  # A wordpiece begins a word unless it starts where the previous one ends.
  begins = [np.r_[True, s.starts[1:] != s.limits[:-1]] for s in sentences]
  words = np.flatnonzero(np.concatenate(begins))
  ends = np.cumsum([len(s.ids) for s in sentences])
  words = np.append(words, ends[-1])
  num_words = len(words) - 1
  chunks = []
  for first in range(0, num_words, config.num_words - config.overlap):
    last = min(first + config.num_words, num_words)
    pieces = list(_between(sentences, ends, words[first], words[last]))
    size = words[last] - words[first]
    if size > budget:
      counts["long_word_passages_split"] += 1
      chunks += _pack_sentences(pieces, budget, ChunkingConfig(), Counter())
    else:
      chunks.append(Chunk(tuple(pieces)))
    if last == num_words:
      break
  return chunks


def _between(sentences, ends, first: int, limit: int) -> Iterator[TokenizedSentence]:
  """Yields the part of each sentence that lies between two wordpieces of the document."""
  for i in range(np.searchsorted(ends, first, side="right"), len(sentences)):
    begin = ends[i] - len(sentences[i].ids)
    if begin >= limit:
      return
    yield _part(sentences[i], max(first - begin, 0), min(limit - begin, len(sentences[i].ids)))


def _part(sentence: TokenizedSentence, first: int, end: int) -> TokenizedSentence:
  if first == 0 and end == len(sentence.ids):
    return sentence
  begin = int(sentence.starts[first])
  return TokenizedSentence(
    start=sentence.start + begin,
    limit=sentence.start + int(sentence.limits[end - 1]),
    ids=sentence.ids[first:end],
    starts=sentence.starts[first:end] - begin,
    limits=sentence.limits[first:end] - begin,
  )


def make_passages(
  documents: Sequence[Document],
  *,
  tokenizer,
  tag: Callable[[str, str], Sequence[tuple[int, int]]],
  config: ChunkingConfig,
  counts: Counter,
  languages: Sequence[str] = ("en",),
) -> Iterator[Passage]:
  """Yields the passages of documents in order.

  The passages of a document depend only on the document. Taking several documents at once allows
  tokenizing many sentences in one call, which is cheaper. A title without a text is the text.

  Args:
    tag: Finds the salient spans (byte offsets) of a text in a language.
    counts: Updated with the counts of chunking.
    languages: The languages of the corpus; each document has one of them.
  """
  documents = [
    document
    if document.text.strip()
    else dataclasses.replace(document, title="", text=document.title)
    for document in documents
  ]
  raws = [document.text.encode() for document in documents]
  found = [language_of(f"{d.title}\n{d.text}", among=languages) for d in documents]
  borders = [
    sentence_spans(document.text, language=language)
    for document, language in zip(documents, found, strict=True)
  ]
  titles = [document.title.encode() for document in documents]
  tokenized = _tokenized(titles, raws, borders, tokenizer)
  for document, language, raw, (title_ids, sentences) in zip(
    documents, found, raws, tokenized, strict=True
  ):
    chunks = chunk_sentences(sentences, title_length=len(title_ids), config=config, counts=counts)
    spans = document.spans if document.spans is not None else tag(document.text, language)
    for chunk in chunks:
      first, end, body_ids = chunk.start, chunk.limit, chunk.ids
      text = raw[first:end].decode()
      room = config.max_passage_length - SPECIAL_TOKENS_PER_PASSAGE - len(body_ids)
      yield Passage(
        document=document.id,
        title=document.title,
        text=text,
        uid=passage_uid(document.title, text),
        title_ids=title_ids[:room],
        body_ids=body_ids,
        sentences=tuple([(s.start - first, s.limit - first) for s in chunk.sentences]),
        spans=tuple([(a - first, b - first) for a, b in spans if first <= a and b <= end]),
      )


def _tokenized(
  titles, raws, borders, tokenizer
) -> Iterator[tuple[np.ndarray, list[TokenizedSentence]]]:
  """Tokenizes titles and sentences of a batch of documents in one call; yields those of each."""
  texts = [
    raw[start:limit] for raw, spans in zip(raws, borders, strict=True) for start, limit in spans
  ]
  encoded = iter(tokenizer.encode_with_offsets([*titles, *texts]))
  title_ids = [ids for ids, _, _ in itertools.islice(encoded, len(titles))]
  for ids_of_title, spans in zip(title_ids, borders, strict=True):
    yield (
      ids_of_title,
      [
        TokenizedSentence(start, limit, *pieces)
        for (start, limit), pieces in zip(spans, encoded, strict=False)
      ],
    )
