"""Embeddings sorted by cell, of which a search reads those of the cells nearest to its query.

The cells are k-means clusters (an inverted file, Sivic and Zisserman 2003). How many cells a search
reads is measured when they are made, on some of the embeddings as queries. So that scores can be
standardized without reading all embeddings, their moments are kept: with S = Σ x and M = Σ x xᵀ,
inner products with q have the sum q·S and the sum of squares qᵀ M q.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator

import numpy as np

from realm_jax.index.fusion import Spread

FEWEST = 20_000  # embeddings that are divided; scanning fewer takes two milliseconds
_DEPTH, _RECALL, _MEASURED = 10, 0.95, 128
_PER_CELL, _ITERATIONS = 32, 6  # embeddings that a centroid is learned from, and how often
_ROWS_AT_ONCE = 4096
_SAMPLED = 1024


@dataclasses.dataclass(frozen=True, eq=False)
class Moments:
  """The number, sum `[E]` and second moments `[E, E]` of embeddings, in float64."""

  count: int
  sum_E: np.ndarray
  products_ExE: np.ndarray

  @classmethod
  def of(cls, embeddings_NxE: np.ndarray) -> "Moments":
    """Returns the moments of embeddings."""
    size = embeddings_NxE.shape[1]
    sum_E, products_ExE = np.zeros(size), np.zeros((size, size))
    for part in _parts(len(embeddings_NxE)):
      part_NxE = embeddings_NxE[part].astype(np.float64)
      sum_E += part_NxE.sum(axis=0)
      products_ExE += part_NxE.T @ part_NxE
    return cls(len(embeddings_NxE), sum_E, products_ExE)

  def __sub__(self, other: "Moments") -> "Moments":
    return Moments(
      self.count - other.count, self.sum_E - other.sum_E, self.products_ExE - other.products_ExE
    )

  def spread(self, query_E: np.ndarray) -> Spread:
    """Returns the spread of the inner products with a query."""
    query_E = query_E.astype(np.float64)
    return Spread(self.count, query_E @ self.sum_E, query_E @ self.products_ExE @ query_E)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Cells:
  """N embeddings in C cells.

  Attributes:
    embeddings_NxE: float32, sorted by cell.
    rows: int32 `[N]`; the row of each of them before it was sorted.
    ends: int64 `[C]`; where each cell ends.
    centroids_CxE: Means of the cells.
    moments: Of all embeddings.
    probes: Cells that have 95 % of the nearest ten of an embedding, on average.
  """

  embeddings_NxE: np.ndarray
  rows: np.ndarray
  ends: np.ndarray
  centroids_CxE: np.ndarray
  moments: Moments
  probes: int

  @classmethod
  def of(cls, embeddings_NxE: np.ndarray) -> "Cells":
    """Divides embeddings."""
    centroids_CxE = _centroids(embeddings_NxE, round(2 * len(embeddings_NxE) ** 0.5))
    cell_N = _nearest(embeddings_NxE, centroids_CxE)
    sizes = np.bincount(cell_N, minlength=len(centroids_CxE))
    return cls(
      embeddings_NxE=embeddings_NxE[rows := np.argsort(cell_N, kind="stable").astype(np.int32)],
      rows=rows,
      ends=np.cumsum(sizes),
      centroids_CxE=centroids_CxE,
      moments=Moments.of(embeddings_NxE),
      probes=_probes(embeddings_NxE, cell_N, centroids_CxE),
    )

  @functools.cached_property
  def places(self) -> np.ndarray:
    """Where each row is among the sorted embeddings."""
    places = np.zeros(len(self.rows), np.int32)
    places[self.rows] = np.arange(len(self.rows), dtype=np.int32)
    return places

  @functools.cached_property
  def _sample(self) -> np.ndarray:
    """Rows to estimate how many match."""
    return np.random.default_rng(0).integers(len(self.rows), size=_SAMPLED)

  def moments_of(self, live_N: np.ndarray) -> Moments:
    """Returns the moments of some rows; quickly, if few are missing since the last call."""
    known_N, moments = self._latest[0]
    if not known_N[live_N].all():
      known_N, moments = np.ones(len(self.rows), bool), self.moments
    gone = self.places[known_N & ~live_N]
    for part in _parts(len(gone)):
      moments -= Moments.of(self.embeddings_NxE[gone[part]])
    self._latest[0] = live_N, moments
    return moments

  @functools.cached_property
  def _latest(self) -> list[tuple[np.ndarray, Moments]]:
    return [(np.ones(len(self.rows), bool), self.moments)]

  def search(
    self,
    query_E: np.ndarray,
    k: int,
    *,
    live_N: np.ndarray,
    matching: Callable[[np.ndarray], np.ndarray] | None = None,
    also: np.ndarray,
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns live rows of the nearest cells, and some others, with their inner products.

    At least k rows are returned if as many are live and match.

    Args:
      live_N: Which rows are not deleted.
      matching: Returns which of some rows `[R]` to search, as bool `[R]`. If a share s of the rows
        matches, cells are read until s^(1/3) of the rows that are compared without a filter do; if
        no more than those match in all, all of them are compared.
      also: Other rows, which are live and match.
    """
    num_rows, num_cells = len(self.rows), len(self.ends)
    probes = min(num_cells, round(self.probes * max(1.0, k / _DEPTH) ** 0.5))
    wanted = max(k, probes * num_rows // num_cells)
    if matching is not None:
      matches = np.count_nonzero(matching(self._sample)) * num_rows / len(self._sample)
      if matches <= 2 * wanted:
        rows = np.flatnonzero(live_N)
        rows = rows[matching(rows)]
        if (matches := len(rows)) <= wanted:
          return rows, self._products(self.places[rows], query_E)
      wanted = max(k, wanted * (matches / num_rows) ** (1 / 3))
      probes = math.ceil(wanted * num_cells / matches)
    nearest = np.argsort(-(self.centroids_CxE @ query_E))
    found, scores, read, size = [], [], 0, 0
    while size < wanted and read < num_cells:
      cells = nearest[read : read + probes]
      firsts, ends = np.where(cells, self.ends[cells - 1], 0), self.ends[cells]
      if matching is None:
        spans = [*map(slice, firsts.tolist(), ends.tolist())]
        rows = np.concatenate([self.rows[span] for span in spans])
        products = [inner_products(self.embeddings_NxE[span], query_E) for span in spans]
        live = live_N[rows]
        found.append(rows[live])
        scores.append(np.concatenate(products)[live])
      else:
        sizes = ends - firsts
        places = np.arange(sizes.sum()) + np.repeat(ends - np.cumsum(sizes), sizes)
        places = places[live_N[self.rows[places]]]
        places = places[matching(self.rows[places])]
        found.append(self.rows[places])
        scores.append(self._products(places, query_E))
      read += len(cells)
      size = sum(map(len, found))
      probes = min(read, math.ceil((wanted - size) * read / max(1, size)))
    is_read = np.zeros(num_cells, bool)
    is_read[nearest[:read]] = True
    also = also[~is_read[self.ends.searchsorted(self.places[also], side="right")]]
    others = self._products(self.places[also], query_E)
    return np.concatenate([*found, also]), np.concatenate([*scores, others])

  def _products(self, places: np.ndarray, query_E: np.ndarray) -> np.ndarray:
    return inner_products(self.embeddings_NxE.take(places, axis=0), query_E)


def inner_products(embeddings_NxE: np.ndarray, query_E: np.ndarray) -> np.ndarray:
  """Returns the scores of embeddings for that of a query, float32 `[N]`."""
  # Not a product of matrices, whose rounding depends on the place of a row.
  return np.einsum("NE,E->N", embeddings_NxE, query_E)


def _parts(number: int) -> Iterator[slice]:
  return (slice(first, first + _ROWS_AT_ONCE) for first in range(0, number, _ROWS_AT_ONCE))


def _centroids(embeddings_NxE: np.ndarray, number: int) -> np.ndarray:
  """Returns the means of clusters of some of the embeddings."""
  draw = np.random.default_rng(0)
  size = min(len(embeddings_NxE), _PER_CELL * number)
  drawn_NxE = embeddings_NxE[np.sort(draw.choice(len(embeddings_NxE), size, replace=False))]
  centroids_CxE = drawn_NxE[draw.choice(size, number, replace=False)]
  for _ in range(_ITERATIONS):
    cell_N = _nearest(drawn_NxE, centroids_CxE)
    order = np.argsort(cell_N, kind="stable")
    firsts = np.flatnonzero(np.diff(cell_N[order], prepend=-1))
    sums_CxE = np.add.reduceat(drawn_NxE[order], firsts, axis=0)
    centroids_CxE = sums_CxE / np.diff(firsts, append=size)[:, None].astype(np.float32)
  return centroids_CxE


def _nearest(embeddings_NxE: np.ndarray, centroids_CxE: np.ndarray) -> np.ndarray:
  """Returns the cell whose centroid is the nearest to each embedding."""
  half_C = np.square(centroids_CxE).sum(axis=1) / 2
  parts = (embeddings_NxE[part] @ centroids_CxE.T - half_C for part in _parts(len(embeddings_NxE)))
  return np.concatenate([scores.argmax(axis=1) for scores in parts])


def _probes(embeddings_NxE: np.ndarray, cell_N: np.ndarray, centroids_CxE: np.ndarray) -> int:
  """Returns how many cells have enough of the best other rows for some of the embeddings."""
  draw = np.random.default_rng(0)
  drawn = draw.choice(len(embeddings_NxE), _MEASURED, replace=False)
  queries_BxE = embeddings_NxE[drawn]
  scores_BxR, rows_BxR = np.zeros((_MEASURED, 0), np.float32), np.zeros((_MEASURED, 0), np.int64)
  for part in _parts(len(embeddings_NxE)):
    scores_BxN = queries_BxE @ embeddings_NxE[part].T
    best = np.argpartition(-scores_BxN, min(_DEPTH, scores_BxN.shape[1] - 1), axis=1)
    best = best[:, : _DEPTH + 1]
    scores_BxR = np.concatenate([scores_BxR, np.take_along_axis(scores_BxN, best, axis=1)], axis=1)
    rows_BxR = np.concatenate([rows_BxR, best + part.start], axis=1)
  order_BxR = np.argsort(-scores_BxR, axis=1)[:, : _DEPTH + 1]
  rows_BxR = np.take_along_axis(rows_BxR, order_BxR, axis=1)
  rank_BxC = np.argsort(np.argsort(-(queries_BxE @ centroids_CxE.T), axis=1), axis=1)
  ranks_BxR = np.take_along_axis(rank_BxC, cell_N[rows_BxR], axis=1)
  return 1 + int(np.quantile(ranks_BxR[rows_BxR != drawn[:, None]], _RECALL, method="higher"))
