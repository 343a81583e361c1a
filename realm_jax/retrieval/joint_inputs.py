"""Builds the encoder inputs of retrieved passages from the passage store."""

import numpy as np

from realm_jax.corpus.passage_store import BODY_SHARE, SPECIAL_TOKENS_PER_PASSAGE, Passages
from realm_jax.devices.datatypes import MaskedQueries, RetrievedBatch, SearchResults, Tokens


def gather(
  queries: MaskedQueries,
  passages: SearchResults,
  *,
  store: Passages,
  passage_length: int,
  joint_length: int,
) -> RetrievedBatch:
  """Makes a batch of B masked queries and their passages `[B, K]`, the null passage in slot 0.

  Passages alone have length P, queries and passages together T.
  """
  ids_BxK = np.asarray(passages.ids_BxK, np.int32)
  return RetrievedBatch(
    queries=queries,
    passage=passage_tokens(store, ids_BxK, length=passage_length),
    joint=joint_tokens(store, queries.query, ids_BxK, length=joint_length),
    valid_BxK=ids_BxK >= -1,
    passage_ids_BxK=ids_BxK,
    stale_scores_BxK=np.asarray(passages.scores_BxK, np.float32),
  )


def passage_tokens(store: Passages, ids: np.ndarray, *, length: int) -> Tokens:
  """Returns `[CLS] title [SEP] body [SEP]` of each id; a negative id gives the null passage.

  The title is truncated, leaving the body a quarter of the length if it needs it, and the body to
  what remains.
  """
  rows, room = ids.reshape(-1), length - SPECIAL_TOKENS_PER_PASSAGE
  titles, title_lengths = _rows_or_nothing(store.title_ids, rows, room)
  _, body_lengths = _rows_or_nothing(store.body_ids, rows, length // BODY_SHARE)
  title_lengths = np.minimum(title_lengths, room - body_lengths)
  tokens = np.zeros((len(rows), length), np.int32)
  tokens[:, 0] = store.metadata.cls_id
  _place(tokens, titles, title_lengths, at=np.ones_like(title_lengths))
  _place_one(tokens, store.metadata.sep_id, at=1 + title_lengths)
  return _with_bodies(tokens, store, rows, at=2 + title_lengths).reshape(*ids.shape, length)


def joint_tokens(store: Passages, query: Tokens, ids_BxK: np.ndarray, *, length: int) -> Tokens:
  """Returns `[CLS] x [SEP] body [SEP]`, `[B, K, T]`; titles are used for retrieval only.

  Raises:
    ValueError: If a query leaves no room for a passage.
  """
  batch, num_passages = ids_BxK.shape
  query_length = query.ids.shape[-1]
  if query_length + 2 > length:
    raise ValueError(
      f"joint length {length} leaves no room for a passage next to queries of {query_length}; "
      "raise joint_length"
    )
  rows = ids_BxK.reshape(-1)
  query_lengths = np.repeat(query.mask.sum(-1), num_passages)
  tokens = np.zeros((len(rows), length), np.int32)
  tokens[:, :query_length] = np.repeat(query.ids, num_passages, axis=0)
  joint = _with_bodies(tokens, store, rows, at=query_lengths)
  return joint.reshape(batch, num_passages, length)


def _with_bodies(
  tokens: np.ndarray, store: Passages, rows: np.ndarray, *, at: np.ndarray
) -> Tokens:
  """Writes the body of each row and `[SEP]` from column `at[i]` on, as segment 1."""
  length = tokens.shape[1]
  bodies, body_lengths = _rows_or_nothing(store.body_ids, rows, length - 1)
  body_lengths = np.minimum(body_lengths, length - 1 - at)
  _place(tokens, bodies, body_lengths, at=at)
  ends = at + body_lengths
  _place_one(tokens, store.metadata.sep_id, at=ends)
  columns = np.arange(length)
  mask = columns <= ends[:, None]
  segments = ((columns >= at[:, None]) & mask).astype(np.int32)
  return Tokens(ids=tokens, mask=mask, segments=segments)


def _rows_or_nothing(read, rows: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
  """Reads ragged rows; those of negative ids are empty."""
  ids, lengths = read(np.maximum(rows, 0), length=length)
  return ids, np.where(rows >= 0, lengths, 0)


def _place(tokens: np.ndarray, values: np.ndarray, lengths: np.ndarray, *, at: np.ndarray) -> None:
  """Writes the first `lengths[i]` values of row i at column `at[i]`."""
  rows, columns = np.nonzero(np.arange(values.shape[1]) < lengths[:, None])
  tokens[rows, at[rows] + columns] = values[rows, columns]


def _place_one(tokens: np.ndarray, value: int, *, at: np.ndarray) -> None:
  tokens[np.arange(len(tokens)), at] = value
