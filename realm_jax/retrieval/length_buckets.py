"""Plans the bucket shapes in which a batch of sequences is computed, to reduce padding.

Sorted by length, the sequences of a batch go into the first of a few plans whose buckets hold them.
Passages and joint inputs choose separately, and each pair of choices is one program to compile.
Plans depend only on the lengths in the corpus, so a resumed run makes the same choices.
"""

import numpy as np

from realm_jax.devices.datatypes import Buckets

_BUCKETS = 4
_SPARE = (0.05, 0.15, 0.3)  # added to the quantile of the lengths that a bucket holds
_STEP = 16  # lengths are rounded up to a multiple of this


def plans(
  lengths_F: np.ndarray, *, num_rows: int, longest: int, shortest: Buckets = ()
) -> tuple[Buckets, ...]:
  """Returns the plans, cheapest first.

  Args:
    lengths_F: Lengths of the corpus's sequences.
    num_rows: Sequences of a batch, excluding those in `shortest`.
    longest: Length to which the batch is padded.
    shortest: A bucket of known size for sequences without a passage.
  """

  def rounded(length: float) -> int:
    return min(int(-(-length // _STEP) * _STEP), longest)

  edges = np.linspace(0, num_rows, _BUCKETS + 1).astype(int)
  first = [(rows, rounded(length)) for rows, length in shortest]
  found = []
  for spare in _SPARE:
    shares = np.minimum(np.arange(1, _BUCKETS + 1) / _BUCKETS + spare, 1.0)
    tops = [rounded(top) for top in np.quantile(np.minimum(lengths_F, longest), shares)]
    buckets = [(int(rows), top) for rows, top in zip(np.diff(edges), tops, strict=True) if rows]
    found.append((*first, *buckets))
  return tuple(dict.fromkeys(found))


def choose(known: tuple[Buckets, ...], lengths_F: np.ndarray) -> Buckets:
  """Returns the first plan that fits sequences of these lengths; empty for full length."""
  sorted_F = np.sort(lengths_F)
  for buckets in known:
    lasts = np.cumsum([rows for rows, _ in buckets]) - 1
    if (sorted_F[lasts] <= [length for _, length in buckets]).all():
      return buckets
  return ()
