"""From a document to passages: whole sentences packed greedily under a wordpiece budget.

Original system, specification of `preprocess_wiki_extractor`: title and three special tokens count
against the budget, the title is stored apart, passages never overlap and never cross documents.
Unlike there, a sentence longer than the budget is split between wordpieces instead of being cut off
later, and a passage keeps the raw text between its sentences.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

SPECIAL_TOKENS_PER_PASSAGE = 3  # [CLS] title [SEP] body [SEP]


@dataclasses.dataclass(frozen=True)
class TokenizedSentence:
  """A sentence with byte offsets into its document.

  Attributes:
    start: first byte.
    limit: byte after the last.
    ids: int32 wordpiece ids.
    starts: first byte of each wordpiece.
    limits: byte after each wordpiece.
  """

  start: int
  limit: int
  ids: np.ndarray
  starts: np.ndarray
  limits: np.ndarray


@dataclasses.dataclass(frozen=True)
class Chunk:
  """Consecutive sentences that make a passage body."""

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
      # A wordpiece that starts where the one before ends belongs to the same word.
      border = end
      while border > first + budget // 2 and sentence.starts[border] == sentence.limits[border - 1]:
        border -= 1
      if border > first + budget // 2:
        end = border
    yield TokenizedSentence(
      start=int(sentence.starts[first]),
      limit=int(sentence.limits[end - 1]),
      ids=sentence.ids[first:end],
      starts=sentence.starts[first:end],
      limits=sentence.limits[first:end],
    )
    first = end


def chunk_sentences(
  sentences: Sequence[TokenizedSentence],
  *,
  title_length: int,
  max_passage_length: int,
  max_sentences: int | None,
  counts: Counter,
) -> list[Chunk]:
  """Packs sentences greedily into chunks.

  Args:
    sentences: the sentences of one document.
    title_length: wordpieces of the title.
    max_passage_length: wordpieces of title, body and three special tokens together.
    max_sentences: sentences of a chunk at most; None: as many as fit.
    counts: gains `long_sentences_split` and `long_titles`.

  Returns:
    Chunks whose wordpieces, put together, are those of all the sentences.

  Raises:
    ValueError: if a chunk could hold no wordpiece or no sentence.
  """
  if max_passage_length <= SPECIAL_TOKENS_PER_PASSAGE:
    raise ValueError(
      f"max_passage_length={max_passage_length} leaves no room beside {SPECIAL_TOKENS_PER_PASSAGE} "
      "special tokens; set it higher"
    )
  if max_sentences is not None and max_sentences < 1:
    raise ValueError(f"max_sentences={max_sentences}; a passage needs one, or none for no limit")
  budget = max_passage_length - SPECIAL_TOKENS_PER_PASSAGE - title_length
  if budget < max_passage_length // 4:
    # A title that crowds out the body is cut by the encoder's input, never the body.
    counts["long_titles"] += 1
    budget = max_passage_length // 4
  chunks: list[Chunk] = []
  current: list[TokenizedSentence] = []
  used = 0
  for sentence in sentences:
    if not len(sentence.ids):
      continue
    pieces = [sentence]
    if len(sentence.ids) > budget:
      counts["long_sentences_split"] += 1
      pieces = split_sentence(sentence, budget=budget)
    for piece in pieces:
      if current and (used + len(piece.ids) > budget or len(current) == max_sentences):
        chunks.append(Chunk(tuple(current)))
        current, used = [], 0
      current.append(piece)
      used += len(piece.ids)
  if current:
    chunks.append(Chunk(tuple(current)))
  return chunks
