"""Passages of other queries are read as if they had been retrieved."""

import numpy as np

from realm_jax.datatypes import SearchResults
from realm_jax.retrieval import batch_probes
from realm_jax.retrieval.joint_inputs import gather
from realm_jax.retrieval.retrieved_batches import hub_share


def test_a_query_is_read_with_the_passages_of_the_one_before(store, make_queries):
  queries = make_queries(([20, 21, 22], 0), ([30], 0), ([31, 32], 0))
  ids_BxK = np.array([[-1, 0, 2], [-1, 1, 3], [-1, 3, -2]])

  def batch(ids_BxK):
    passages = SearchResults(ids_BxK, np.zeros(ids_BxK.shape))
    return gather(queries, passages, store=store, passage_length=8, joint_length=16)

  shuffled = batch_probes.of_other_queries(batch(ids_BxK))
  expected = batch(np.roll(ids_BxK, 1, axis=0))
  for name in ("ids", "mask", "segments"):
    found = getattr(shuffled.joint, name)
    np.testing.assert_array_equal(found, getattr(expected.joint, name), name)


def test_a_passage_that_does_not_fit_loses_its_end(store, make_queries):
  queries = make_queries(([20], 0), ([21, 22, 23, 24], 0))
  passages = SearchResults(np.array([[2], [-1]]), np.zeros((2, 1)))
  batch = gather(queries, passages, store=store, passage_length=8, joint_length=8)
  shuffled = batch_probes.of_other_queries(batch)
  assert np.asarray(shuffled.joint.ids[:, 0]).tolist() == [
    [2, 4, 3, 3, 0, 0, 0, 0],
    [2, 21, 22, 23, 4, 3, 11, 12],
  ]


def test_the_hub_share_on_the_device_is_that_of_the_host():
  for ids_BxK in ([[-1, 4, 5], [-1, 5, 6], [-1, 5, -2], [-1, 7, 8]], [[-1, -2]]):
    ids_BxK = np.array(ids_BxK)
    assert batch_probes.hub_share(ids_BxK) == hub_share(ids_BxK)
