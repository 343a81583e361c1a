"""Embeds all passages of a store, in batches of similar length."""

from collections.abc import Callable, Iterator

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.datatypes import Tokens
from realm_jax.retrieval.joint_inputs import passage_tokens

_BUCKET_STEP = 16  # lengths are rounded up to a multiple of this; one compiled program each


def passage_batches(
  store: PassageStore,
  *,
  passage_length: int,
  tokens_per_batch: int,
  multiple_of: int = 1,
  part: slice | None = None,
) -> Iterator[tuple[np.ndarray, Tokens]]:
  """Yields every passage once, shortest first, in batches of about the same number of tokens.

  Args:
    store: The knowledge corpus.
    passage_length: Maximum length P of the inputs.
    tokens_per_batch: Approximate number of padded tokens per batch.
    multiple_of: The batch size is a multiple of this.
    part: Rows of the store to embed, counted from its start; None embeds all.

  Yields:
    Rows `[n]` and `Tokens` `[B, L]` with B ≥ n; rows past n repeat the last one, so that each
    length has only one shape.
  """
  part = slice(0, len(store)) if part is None else part
  lengths = np.minimum(store.lengths()[part], passage_length)
  bucket_N = np.minimum(-(-lengths // _BUCKET_STEP) * _BUCKET_STEP, passage_length)
  order = np.argsort(lengths, kind="stable")
  for bucket in np.unique(bucket_N):
    rows_of_bucket = order[bucket_N[order] == bucket]
    size = max(multiple_of, tokens_per_batch // bucket // multiple_of * multiple_of)
    for first in range(0, len(rows_of_bucket), size):
      rows = rows_of_bucket[first : first + size]
      filled = np.pad(rows, (0, size - len(rows)), mode="edge")
      yield rows, passage_tokens(store, part.start + filled, length=int(bucket))


def embed_passages(
  batches: Iterator[tuple[np.ndarray, Tokens]],
  *,
  encode_passage: Callable[[Tokens], np.ndarray],
  num_passages: int,
  embedding_size: int,
  dtype,
) -> np.ndarray:
  """Returns the embeddings `[N, E]` of all passages.

  Args:
    batches: Batches from `passage_batches`.
    encode_passage: `Tokens [B, L] -> [B, E]`, dispatched to the devices without waiting.
    num_passages: Number of passages, N.
    embedding_size: Width of the embeddings, E.
    dtype: Dtype of the result.

  Raises:
    ValueError: If the embedding of a passage is missing or not finite.
  """
  embeddings_NxE = np.full((num_passages, embedding_size), np.nan, dtype)
  pending = None
  for rows, tokens in batches:
    # The host prepares the next batch while the devices work on this one.
    result = encode_passage(tokens)
    if pending is not None:
      embeddings_NxE[pending[0]] = np.asarray(pending[1])[: len(pending[0])]
    pending = rows, result
  if pending is not None:
    embeddings_NxE[pending[0]] = np.asarray(pending[1])[: len(pending[0])]
  broken = ~np.isfinite(embeddings_NxE.astype(np.float32)).all(axis=1)
  if broken.any():
    raise ValueError(
      f"{broken.sum()} of {num_passages} passages have no finite embedding, first in row "
      f"{int(np.argmax(broken))}; the checkpoint may have diverged"
    )
  return embeddings_NxE
