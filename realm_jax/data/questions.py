"""Questions with a known answer, as masked queries; and text that holds `[MASK]`."""

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence

import numpy as np

from realm_jax.data.input_pipeline import tokens
from realm_jax.datatypes import MASK, MaskedQueries
from realm_jax.tokenization import WordPieceTokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
  """A sentence in which one span is asked for.

  Attributes:
    id: its name.
    text: the whole sentence, answer included.
    span: byte offsets `(start, limit)` of the answer in `text`.
    answer: the answer as text.
    passage: a sentence of the knowledge corpus that holds the answer; empty if not known.
    group: figures are reported by group as well.
  """

  id: str
  text: str
  span: tuple[int, int]
  answer: str
  passage: str = ""
  group: str = ""

  @property
  def masked_text(self) -> str:
    raw = self.text.encode()
    start, limit = self.span
    return raw[:start].decode() + MASK + raw[limit:].decode()


def read_questions(path: str | os.PathLike) -> list[Question]:
  """Reads JSON Lines with `id`, `text`, `spans` (one), `answer`, and optional `passage`, `kind`.

  Raises:
    FileNotFoundError: if the file is not there.
    ValueError: if a line is no such question, or there is none.
  """
  questions = []
  with open(path, encoding="utf-8") as file:
    for number, line in enumerate(file, 1):
      try:
        record = json.loads(line)
        questions.append(
          Question(
            id=str(record["id"]),
            text=record["text"],
            span=tuple(record["spans"][0]),
            answer=record["answer"],
            passage=record.get("passage", ""),
            group=record.get("kind", ""),
          )
        )
      except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"{os.fspath(path)}, line {number} is no question: {error!r}") from error
  if not questions:
    raise ValueError(f"{os.fspath(path)} holds no question")
  return questions


def question_batches(
  questions: Sequence[Question],
  *,
  tokenizer: WordPieceTokenizer,
  query_length: int,
  max_masks: int,
  batch_size: int,
) -> Iterator[tuple[Sequence[Question], MaskedQueries]]:
  """Yields questions and their masked queries, the last batch filled up with empty queries.

  Of an answer longer than `max_masks` the first wordpieces are asked for, the others stay hidden.

  Raises:
    ValueError: if an answer has no wordpiece, or does not lie within `query_length`.
  """
  for first in range(0, len(questions), batch_size):
    batch = questions[first : first + batch_size]
    encoded = tokenizer.encode_with_offsets([question.text for question in batch])
    rows = []
    for question, (ids, starts, limits) in zip(batch, encoded, strict=True):
      start, limit = question.span
      masked = (starts >= start) & (starts < limit) & (limits <= limit)
      positions = np.flatnonzero(masked)
      if not len(positions) or positions[-1] >= query_length - 2:
        raise ValueError(
          f"question {question.id!r}: the answer {question.answer!r} takes wordpieces "
          f"{positions.tolist()}; a query holds {query_length - 2}"
        )
      kept = positions[:max_masks]
      rows.append((np.where(masked, tokenizer.mask_id, ids), kept, ids[kept]))
    yield batch, _padded(rows, tokenizer, query_length, max_masks, batch_size)


def masked_text_query(
  text: str, *, num_masks: int, tokenizer: WordPieceTokenizer, query_length: int, max_masks: int
) -> MaskedQueries:
  """Makes the query `[1, L]` of a text with one `[MASK]`, taken for `num_masks` wordpieces.

  Raises:
    ValueError: if the text has no `[MASK]`, several, or does not fit.
  """
  if not 0 < num_masks <= max_masks:
    raise ValueError(f"num_masks={num_masks}; a query has 1 to {max_masks} masks")
  if text.count(MASK) != 1:
    raise ValueError(
      f"{text!r} has {text.count(MASK)} {MASK}; write it once, where the answer goes"
    )
  ids = tokenizer.encode(text.replace(MASK, MASK * num_masks))
  positions = np.flatnonzero(ids == tokenizer.mask_id)
  if positions[-1] >= query_length - 2:
    raise ValueError(
      f"{text!r} is too long: the answer must lie in the first {query_length - 2} wordpieces"
    )
  return _padded([(ids, positions, ids[positions])], tokenizer, query_length, max_masks, 1)


def _padded(rows, tokenizer, query_length: int, max_masks: int, batch_size: int) -> MaskedQueries:
  ids_BxL = np.zeros((batch_size, query_length), np.int32)
  ids_BxL[:, :2] = tokenizer.cls_id, tokenizer.sep_id
  positions_BxM = np.zeros((batch_size, max_masks), np.int32)
  targets_BxM = np.zeros((batch_size, max_masks), np.int32)
  weights_BxM = np.zeros((batch_size, max_masks), np.float32)
  for row, (ids, positions, targets) in enumerate(rows):
    kept = ids[: query_length - 2]
    ids_BxL[row, 1 : 1 + len(kept)] = kept
    ids_BxL[row, 1 + len(kept)] = tokenizer.sep_id
    positions_BxM[row, : len(positions)] = positions + 1
    targets_BxM[row, : len(positions)] = targets
    weights_BxM[row, : len(positions)] = 1
  return MaskedQueries(
    query=tokens(ids_BxL),
    mlm_positions_BxM=positions_BxM,
    mlm_targets_BxM=targets_BxM,
    mlm_weights_BxM=weights_BxM,
    source_uid_B=np.zeros(batch_size, np.int64),
  )
