"""A map of queries makes an old index answer as a new one would."""

import numpy as np

from realm_jax.index import query_map
from realm_jax.index.exact_searcher import ExactSearcher


def test_embeddings_that_moved_linearly_are_found_as_if_all_were_embedded_again():
  random = np.random.default_rng(0)
  old_NxE, queries_BxE = random.standard_normal((400, 8)), random.standard_normal((50, 8))
  turn_ExE, _ = np.linalg.qr(np.eye(8) + 0.5 * random.standard_normal((8, 8)))
  new_NxE = old_NxE @ turn_ExE + 3.0  # the same for all passages, so no rank depends on it
  sample = random.choice(400, 100, replace=False)
  mapped = query_map.MappedSearcher(
    ExactSearcher(old_NxE.astype(np.float32)), query_map.fit(old_NxE[sample], new_NxE[sample])
  )
  fresh, stale = ExactSearcher(new_NxE.astype(np.float32)), mapped.searcher
  best_Bx1 = fresh.search(queries_BxE.astype(np.float32), 1).ids_BxK
  found = [searcher.search(queries_BxE, 1).ids_BxK for searcher in (mapped, stale)]
  shares = [(ids_Bx1 == best_Bx1).mean() for ids_Bx1 in found]
  assert shares[0] > 0.95 > 0.6 > shares[1]


def test_a_sample_that_has_not_moved_leaves_queries_as_they_are():
  sample_JxE = np.random.default_rng(0).standard_normal((5, 8))  # fewer rows than dimensions
  np.testing.assert_allclose(query_map.fit(sample_JxE, sample_JxE), np.eye(8), atol=1e-6)
