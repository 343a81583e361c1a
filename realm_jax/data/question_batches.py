"""Questions and masked sentences as padded batches of wordpieces."""

from collections.abc import Iterator, Sequence

import numpy as np

from realm_jax.data.batches import tokens
from realm_jax.data.questions import Question
from realm_jax.devices.datatypes import MaskedQueries, Questions, Tokens
from realm_jax.text.wordpieces import MASK, Tokenizer


def encode_questions(texts: Sequence[str], tokenizer: Tokenizer) -> list[np.ndarray]:
  """Returns the wordpieces of questions; a literal `[MASK]` becomes the mask token."""
  return [
    tokenizer.encode(text) if MASK in text else ids
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True)
  ]


def question_batches(
  texts: Sequence[str], *, tokenizer: Tokenizer, query_length: int, batch_size: int
) -> Iterator[tuple[Questions, np.ndarray]]:
  """Yields padded batches of questions with bool `[n]`: which questions were truncated."""
  encoded = encode_questions(texts, tokenizer)
  places = np.arange(batch_size)
  for first in range(0, len(texts), batch_size):
    rows = encoded[first : first + batch_size]
    batch = Questions(
      query=_padded(rows, tokenizer, query_length, batch_size),
      index_B=np.minimum(first + places, len(texts) - 1).astype(np.int32),
      weights_B=(places < len(rows)).astype(np.float32),
    )
    yield batch, np.array([len(ids) > query_length - 2 for ids in rows])


def masked_query_batches(
  questions: Sequence[Question],
  *,
  tokenizer: Tokenizer,
  query_length: int,
  max_masks: int,
  batch_size: int,
) -> Iterator[tuple[Sequence[Question], MaskedQueries]]:
  """Yields questions and their masked queries; pads the last batch with empty queries.

  Only the first `max_masks` wordpieces of a longer answer are predicted; the others stay hidden.

  Raises:
    ValueError: If an answer has no wordpiece, or does not fit into `query_length`.
  """
  for first in range(0, len(questions), batch_size):
    batch = questions[first : first + batch_size]
    encoded = tokenizer.encode_with_offsets([question.text for question in batch])
    rows = []
    for question, (ids, starts, limits) in zip(batch, encoded, strict=True):
      assert question.span is not None, "only sentences with a span are masked"
      start, limit = question.span
      masked = (starts >= start) & (starts < limit) & (limits <= limit)
      positions = np.flatnonzero(masked)
      if not len(positions) or positions[-1] >= query_length - 2:
        raise ValueError(
          f"question {question.id!r}: the answer {question.answer!r} takes wordpieces "
          f"{positions.tolist()}; a query holds {query_length - 2}, so leave it out (`realm "
          "mask_sentences --max_words` draws shorter sentences)"
        )
      kept = positions[:max_masks]
      rows.append((np.where(masked, tokenizer.mask_id, ids), kept, ids[kept]))
    yield batch, _masked_queries(rows, tokenizer, query_length, max_masks, batch_size)


def masked_text_query(
  text: str, *, num_masks: int, tokenizer: Tokenizer, query_length: int, max_masks: int
) -> MaskedQueries:
  """Makes the query `[1, L]` of a text whose `[MASK]` stands for `num_masks` wordpieces.

  Raises:
    ValueError: If the text does not have exactly one `[MASK]`, or is too long.
  """
  if not 0 < num_masks <= max_masks:
    raise ValueError(f"num_masks={num_masks}; use 1 to {max_masks}")
  if text.count(MASK) != 1:
    raise ValueError(
      f"{text!r} has {text.count(MASK)} {MASK}; write exactly one, where the answer goes"
    )
  ids = tokenizer.encode(text.replace(MASK, MASK * num_masks))
  positions = np.flatnonzero(ids == tokenizer.mask_id)
  if positions[-1] >= query_length - 2:
    raise ValueError(
      f"{text!r} is too long: the answer must lie in the first {query_length - 2} wordpieces"
    )
  rows = [(ids, positions, ids[positions])]
  return _masked_queries(rows, tokenizer, query_length, max_masks, 1)


def _masked_queries(
  rows, tokenizer: Tokenizer, query_length: int, max_masks: int, batch_size: int
) -> MaskedQueries:
  """Makes queries from rows of ids, mask positions and targets."""
  positions_BxM = np.zeros((batch_size, max_masks), np.int32)
  targets_BxM = np.zeros((batch_size, max_masks), np.int32)
  weights_BxM = np.zeros((batch_size, max_masks), np.float32)
  for row, (_, positions, targets) in enumerate(rows):
    positions_BxM[row, : len(positions)] = positions + 1
    targets_BxM[row, : len(positions)] = targets
    weights_BxM[row, : len(positions)] = 1
  return MaskedQueries(
    query=_padded([ids for ids, _, _ in rows], tokenizer, query_length, batch_size),
    mlm_positions_BxM=positions_BxM,
    mlm_targets_BxM=targets_BxM,
    mlm_weights_BxM=weights_BxM,
    source_uid_B=np.zeros(batch_size, np.int64),
  )


def _padded(
  rows: Sequence[np.ndarray], tokenizer: Tokenizer, query_length: int, batch_size: int
) -> Tokens:
  """Makes `[CLS] ids [SEP]` of each row, and empty queries for missing rows."""
  ids_BxL = np.zeros((batch_size, query_length), np.int32)
  ids_BxL[:, :2] = tokenizer.cls_id, tokenizer.sep_id
  for row, ids in enumerate(rows):
    kept = ids[: query_length - 2]
    ids_BxL[row, 1 : 1 + len(kept)] = kept
    ids_BxL[row, 1 + len(kept)] = tokenizer.sep_id
  return tokens(ids_BxL)
