"""Embeds passages of a store, in batches of similar length."""

import concurrent.futures
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from realm_jax.corpus.passage_store import Passages
from realm_jax.devices.datatypes import Tokens
from realm_jax.retrieval.joint_inputs import passage_tokens

BUCKET_STEP = 16  # lengths are rounded up to a multiple of this; one compiled program each


def passage_batches(
  store: Passages,
  *,
  passage_length: int,
  tokens_per_batch: int,
  multiple_of: int = 1,
  passages_N: np.ndarray | None = None,
) -> Iterator[tuple[np.ndarray, Tokens]]:
  """Yields passages once each, shortest first, in batches of about the same number of tokens.

  Args:
    passage_length: Maximum length P of the inputs.
    tokens_per_batch: Approximate number of padded tokens per batch.
    multiple_of: The batch size is a multiple of this.
    passages_N: The passages; None means all.

  Yields:
    Rows `[n]` of the passages and `Tokens` `[B, L]` with B ≥ n; rows past n repeat the last one, so
    that each length has only one shape.
  """
  passages_N = np.arange(len(store)) if passages_N is None else passages_N
  lengths = np.minimum(store.lengths()[passages_N], passage_length)
  bucket_N = padded_lengths(lengths, passage_length=passage_length)
  order = np.argsort(lengths, kind="stable")
  for bucket in np.unique(bucket_N):
    rows_of_bucket = order[bucket_N[order] == bucket]
    size = max(multiple_of, tokens_per_batch // bucket // multiple_of * multiple_of)
    for first in range(0, len(rows_of_bucket), size):
      rows = rows_of_bucket[first : first + size]
      filled = np.pad(rows, (0, size - len(rows)), mode="edge")
      yield rows, passage_tokens(store, passages_N[filled], length=int(bucket))


def padded_lengths(lengths_N: np.ndarray, *, passage_length: int) -> np.ndarray:
  """Returns the lengths that passages have in their batches."""
  return np.minimum(-(-lengths_N // BUCKET_STEP) * BUCKET_STEP, passage_length)


def embed_passages(
  batches: Iterator[tuple[np.ndarray, Tokens]],
  *,
  encoders: Sequence[Callable[[Tokens], np.ndarray]],
  passages_N: np.ndarray,
  embedding_size: int,
  dtype,
) -> np.ndarray:
  """Returns the embeddings `[N, E]` of passages.

  Args:
    batches: Batches from `passage_batches`.
    encoders: `Tokens [B, L] -> [B, E]`, dispatched to the devices without waiting. Each takes the
      next batch when it is ready for one.
  """
  embeddings_NxE = np.full((len(passages_N), embedding_size), np.nan, dtype)
  lock, ended = threading.Lock(), threading.Event()

  def next_batch():
    with lock:
      return None if ended.is_set() else next(batches, None)

  def embed(encode):
    pending = None
    try:
      while (batch := next_batch()) is not None or pending is not None:
        # The host prepares the next batch while the devices work on this one.
        result = None if batch is None else (batch[0], encode(batch[1]))
        if pending is not None:
          embeddings_NxE[pending[0]] = np.asarray(pending[1])[: len(pending[0])]
        pending = result
    finally:
      ended.set()  # after an error, for all

  first, *others = encoders
  with concurrent.futures.ThreadPoolExecutor(max(1, len(others))) as pool:
    helpers = [pool.submit(embed, encode) for encode in others]
    embed(first)
    for helper in helpers:
      helper.result()
  broken = ~np.isfinite(embeddings_NxE.astype(np.float32)).all(axis=1)
  if broken.any():
    raise ValueError(
      f"{broken.sum()} of {len(passages_N)} passages have no finite embedding, first in row "
      f"{passages_N[np.argmax(broken)]}; the checkpoint may have diverged"
    )
  return embeddings_NxE
