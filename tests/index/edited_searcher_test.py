"""An index with edits finds the same passages as a rebuilt index."""

import numpy as np

from realm_jax.index.edited_searcher import EditedSearcher
from realm_jax.index.exact_searcher import ExactSearcher


def test_edits_are_found_as_if_the_index_had_been_built_anew():
  random = np.random.default_rng(0)
  base_NxE = random.normal(size=(40, 4)).astype(np.float32)
  written_AxE = random.normal(size=(3, 4)).astype(np.float32)
  queries_BxE = random.normal(size=(6, 4)).astype(np.float32)
  searcher = EditedSearcher(
    ExactSearcher(base_NxE), hidden=[3, 5, 8], ids=[3, 40, 41], embeddings=written_AxE
  )
  rebuilt = np.concatenate([base_NxE, written_AxE[1:]])
  rebuilt[3] = written_AxE[0]
  rebuilt[[5, 8]] = -100 * queries_BxE.sum(0)  # far from all of them
  ids = np.argsort(-(queries_BxE @ rebuilt.T), axis=1)[:, :6]
  found = searcher.search(queries_BxE, 6)
  keep = ~np.isin(ids, [5, 8])
  for row in range(len(ids)):
    want = ids[row][keep[row]]
    assert found.ids_BxK[row, : len(want)].tolist() == want.tolist()
  assert not np.isin(found.ids_BxK, [5, 8]).any()
