"""Cuts documents into passages: whole sentences packed greedily, or a fixed number of words.

As in the original system (`preprocess_wiki_extractor`), the title and three special tokens count
against the budget, the title is stored separately, and passages never cross documents nor, by
default, overlap. Unlike the original, a sentence that exceeds the budget is split between
wordpieces rather than truncated later, and a passage keeps the raw text between its sentences.
Passages of a fixed number of words follow Karpukhin et al. 2020 (DPR), who used 100.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from realm_jax.foundations import choices

SPECIAL_TOKENS_PER_PASSAGE = 3  # [CLS] title [SEP] body [SEP]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChunkingConfig:
  """How documents are cut into passages.

  Attributes:
    unit: "sentences" packs as many as fit, "words" takes a fixed number.
    max_passage_length: Maximum wordpieces of title, body and three special tokens together.
    max_sentences: Maximum sentences per passage; None packs as many as fit.
    num_words: Words per passage if `unit` is "words".
    overlap: Sentences or words at the end of a passage that the next one repeats, if they fit.
  """

  unit: Literal["sentences", "words"] = "sentences"
  max_passage_length: int = 288
  max_sentences: int | None = None
  num_words: int = 100
  overlap: int = 0

  def __post_init__(self):
    choices.check_fields(self)
    if self.max_passage_length <= SPECIAL_TOKENS_PER_PASSAGE:
      raise ValueError(
        f"max_passage_length={self.max_passage_length} leaves no room for text next to "
        f"{SPECIAL_TOKENS_PER_PASSAGE} special tokens; raise it"
      )
    if self.max_sentences is not None and self.max_sentences < 1:
      raise ValueError(f"max_sentences={self.max_sentences}; use at least 1, or none for no limit")
    if self.num_words < 1:
      raise ValueError(f"num_words={self.num_words}; use at least 1")
    size = self.num_words if self.unit == "words" else self.max_sentences
    if self.overlap < 0 or (size is not None and self.overlap >= size):
      raise ValueError(
        f"overlap={self.overlap}; use 0 or more, and less than the {size} {self.unit} of a passage"
      )


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
  if budget < config.max_passage_length // 4:
    # If the title leaves too little room, the encoder's input truncates the title, not the body.
    counts["long_titles"] += 1
    budget = config.max_passage_length // 4
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
