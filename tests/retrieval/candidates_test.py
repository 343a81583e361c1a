import numpy as np
import pytest

from realm_jax.devices.datatypes import SearchResults
from realm_jax.retrieval.retriever import choose_passages


@pytest.mark.parametrize(
  ("ids", "trivial", "expected"),
  [
    ([7, 3, 9, 5], [], [-1, 7, 3, 9]),  # the fourth was fetched for nothing
    ([7, 3, 9, 5], [7], [-1, 3, 9, 5]),
    ([7, 3, 9, 5], [9], [-1, 7, 3, 5]),
    ([7, 3, 9, 5], [5], [-1, 7, 3, 9]),
    ([7, 3, 9, 5], [7, 9], [-1, 3, 5, -2]),
    ([7, 3, -2, -2], [], [-1, 7, 3, -2]),
    ([7, 3, -2, -2], [7], [-1, 3, -2, -2]),
    ([7, -2, -2, -2], [7], [-1, -2, -2, -2]),
    ([7, 3], [], [-1, 7, 3, -2]),  # fewer results than slots
    ([0, 3, 9, 5], [], [-1, 0, 3, 9]),
  ],
)
def test_the_null_passage_comes_first_and_the_trivial_one_never(ids, trivial, expected):
  scores = np.where(np.array(ids) < 0, -np.inf, 10.0 - np.arange(len(ids))).astype(np.float32)
  score_of = dict(zip(ids, scores.tolist(), strict=True))
  chosen = choose_passages(
    SearchResults(np.array([ids], np.int32), scores[None]),
    trivial_BxR=np.isin([ids], trivial),
    num_passages=4,
  )
  assert chosen.ids_BxK.tolist() == [expected]
  assert chosen.scores_BxK.tolist() == [[score_of[i] if i >= 0 else 0 for i in expected]]
  assert (chosen.ids_BxK.dtype, chosen.scores_BxK.dtype) == (np.int32, np.float32)
