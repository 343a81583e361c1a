"""Pads query batches to powers of two, so that few batch sizes are compiled."""

from collections.abc import Callable, Sequence

import jax
import numpy as np

MIN_BUCKET = 8
_MAX_SCORES = 2**27  # B x n scores on one device at once: 512 MiB of float32


def max_bucket(rows: int) -> int:
  """Returns how many queries are scored against `rows` passages at once, a power of two."""
  return 1 << (max(MIN_BUCKET, _MAX_SCORES // rows).bit_length() - 1)


def bucket(num_queries: int) -> int:
  """Returns the size to which a batch of queries is padded."""
  return max(MIN_BUCKET, 1 << (num_queries - 1).bit_length())


def run(
  program: Callable[[np.ndarray], Sequence[jax.Array]], queries_BxE: np.ndarray, *, rows: int
) -> list[np.ndarray]:
  """Returns the arrays `[B, ...]` that a program makes of padded queries and `rows` passages."""
  parts, size = [], max_bucket(rows)
  for start in range(0, len(queries_BxE), size):
    part_BxE = queries_BxE[start : start + size]
    count = len(part_BxE)
    padded_BxE = np.pad(part_BxE, ((0, bucket(count) - count), (0, 0)))
    parts.append([np.asarray(array)[:count] for array in program(padded_BxE)])
  return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
