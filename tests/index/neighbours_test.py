import numpy as np
import pytest

from realm_jax.devices.datatypes import SearchResults
from realm_jax.index import neighbours
from realm_jax.index.neighbours import Neighbours, find_neighbours
from realm_jax.index.postings import Postings
from realm_jax.index.searcher import SearcherConfig

RNG = np.random.default_rng(0)


def topics(*, count, documents=3, dimensions=16):
  """Documents of two passages, of which those of a topic share words and a direction."""
  names, texts, rows = [], [], []
  for topic in range(count):
    direction = RNG.normal(size=dimensions)
    for document in range(documents):
      for _ in range(2):
        names.append(f"{topic}-{document}")
        own = " ".join(RNG.choice(list("abcdefgh"), 6))
        texts.append(f"topic{topic} subject{topic} field{topic} {own}")
        rows.append(direction + 0.3 * RNG.normal(size=dimensions))
  return names, texts, np.array(rows, np.float32)


@pytest.mark.parametrize("kind", ["exact", "scann"])
def test_the_nearest_documents_are_those_of_the_same_topic(monkeypatch, kind):
  monkeypatch.setattr(neighbours, "_SEARCH", SearcherConfig(kind=kind, min_passages_for_tree=100))
  names, texts, embeddings_NxE = topics(count=30, documents=6)
  found = find_neighbours(names, embeddings_NxE=embeddings_NxE, postings=Postings.build(texts))
  assert (found.nearest_DxJ // 6 == np.arange(180)[:, None] // 6).mean() > 0.98
  assert (found.nearest_DxJ != np.arange(180)[:, None]).all()
  np.testing.assert_array_equal(found.document_N, np.repeat(np.arange(180), 2))


def test_passages_without_a_document_are_their_own():
  found = find_neighbours(
    ["", "", "x"], embeddings_NxE=np.eye(3, dtype=np.float32), postings=Postings.build("abc")
  )
  assert found.document_N.tolist() == [0, 1, 2]
  assert np.sort(found.nearest_DxJ, axis=1).tolist() == [[1, 2], [0, 2], [0, 1]]
  alone = find_neighbours(
    ["x"], embeddings_NxE=np.ones((1, 3), np.float32), postings=Postings.build(["a"])
  )
  assert alone.mean_scores(np.array([0]), np.array([4.0])).tolist() == [0]


def test_a_document_gets_the_mean_of_the_best_passages_of_its_neighbours():
  of = Neighbours(np.array([0, 0, 1, 2]), np.array([[1, 2], [0, 2], [0, 1]]))
  ids = np.arange(4)
  assert of.mean_scores(ids, np.array([5.0, 1.0, 2.0, -4.0])).tolist() == [-1, -1, 0.5, 3.5]
  # Document 1 is hidden, and passage 9 was added.
  ids, scores = np.array([0, 1, 3, 9]), np.array([5.0, 1.0, -4.0, 8.0])
  assert of.mean_scores(ids, scores).tolist() == [-2, -2, 2.5, 0]


def test_what_an_approximate_search_misses_is_replaced_by_the_nearest_document(monkeypatch):
  class Misses:
    def search(self, queries_BxE, k):
      ids = np.array([[0, 2, -2, -2], [3, 2, 1, -2], [2, 0, 1, 3], [1, 0, 2, -2]])
      return SearchResults(ids[:, :k], np.zeros((4, k), np.float32))

  monkeypatch.setattr(neighbours.assembly, "assemble", lambda *_, **__: Misses())
  found = neighbours._nearest(np.eye(4, dtype=np.float32))
  assert found.tolist() == [[2, 2, 2], [3, 2, 3], [0, 1, 3], [1, 0, 2]]
