"""Passages of the batch as candidates: those that its queries were cut from.

A query is read with what stands beside it in the batch, and the loss weights the passages by their
similarity to it, as Revela does with the sequences of a batch (Cai et al. 2025). Nothing is
embedded or searched to find them.
"""

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.datatypes import MISSING_PASSAGE_ID, MaskedQueries, SearchResults
from realm_jax.retrieval import trivial_passages


def find(
  queries: MaskedQueries, *, store: PassageStore, count: int, neighbours: int, num_streams: int
) -> SearchResults:
  """Returns candidates `[B, count]` in the order in which they are to be read, all scored 0.

  The passages fewer than `neighbours` rows from that of the query come first, the nearest before
  the others, and then the rest at random. The draws are seeded with the passages of the batch, so a
  batch gets the same candidates whenever it is read.

  Args:
    queries: Queries of `num_streams` data streams, as many of each. Candidates are of the query's
      own stream, so that they do not depend on the number of processes.
  """
  rows_B = trivial_passages.sources(queries, store=store)
  ids_BxR = np.concatenate(
    [_of_stream(part_B, count, neighbours) for part_B in np.split(rows_B, num_streams)]
  )
  return SearchResults(ids_BxR, np.zeros(ids_BxR.shape, np.float32))


def _of_stream(rows_B: np.ndarray, count: int, neighbours: int) -> np.ndarray:
  known_R = np.unique(rows_B[rows_B >= 0])
  distances_BxR = np.minimum(np.abs(known_R - rows_B[:, None]), neighbours)
  distances_BxR[rows_B < 0] = neighbours  # a query of no known passage has none near it
  random = np.random.default_rng(rows_B + 1)
  order_BxR = np.argsort(distances_BxR + random.random(distances_BxR.shape), axis=1)
  ids_BxR = known_R[order_BxR[:, :count]].astype(np.int32)
  missing = count - ids_BxR.shape[1]
  return np.pad(ids_BxR, [(0, 0), (0, missing)], constant_values=MISSING_PASSAGE_ID)
