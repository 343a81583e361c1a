"""Which shapes a batch of sequences is computed in, so that little of it is padding.

Sorted by length, the sequences fill the buckets of the first of a few plans that holds them.
Passages and joint inputs choose apart, and each pair of choices is a program to compile. Plans
follow from the lengths in the corpus alone, so a run that is resumed chooses as it did before.
"""

import numpy as np

from realm_jax.datatypes import Buckets

_BUCKETS = 4
_SPARE = (0.05, 0.15, 0.3)  # share of the corpus by which a bucket's passages may be longer
_STEP = 16  # lengths are rounded up to a multiple of this


def plans(
  lengths_F: np.ndarray, *, num_rows: int, longest: int, shortest: Buckets = ()
) -> tuple[Buckets, ...]:
  """Returns the plans, cheapest first.

  Args:
    lengths_F: Of the corpus's sequences.
    num_rows: Sequences of a batch, apart from those in `shortest`.
    longest: To which the batch is padded.
    shortest: A bucket of known size, for sequences without a passage.
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
  """Returns the first plan that holds sequences of these lengths, or none: full length for all."""
  sorted_F = np.sort(lengths_F)
  for buckets in known:
    lasts = np.cumsum([rows for rows, _ in buckets]) - 1
    if (sorted_F[lasts] <= [length for _, length in buckets]).all():
      return buckets
  return ()
