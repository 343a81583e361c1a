import numpy as np
import pytest

from realm_jax.index.bm25 import Bm25Retriever

pytest.importorskip("bm25s", reason="the extra bm25 is not installed")

TEXTS = ["the cat sat", "dogs bark at the cat", "a dog barked loudly", "rivers flow", "cat cat cat"]


def test_rare_words_and_short_passages_come_first():
  retriever = Bm25Retriever(TEXTS)
  found = retriever.retrieve(["Which rivers?", "who barks?", "cat"], k=3)
  assert found.ids_BxK.dtype == np.int32
  assert found.ids_BxK[0, 0] == 3
  assert set(found.ids_BxK[1, :2].tolist()) == {1, 2}
  assert found.ids_BxK[2].tolist() == [4, 0, 1]
  assert (np.diff(found.scores_BxK, axis=1) <= 0).all()
  assert retriever.num_passages == 5


def test_without_a_stemmer_words_must_be_the_same():
  ids_BxK, scores_BxK = Bm25Retriever(TEXTS, stemmer="none").retrieve(["who bark loudly?"], k=2)
  assert set(ids_BxK[0].tolist()) == {1, 2}
  stemmed = Bm25Retriever(TEXTS).retrieve(["who bark loudly?"], k=2)
  assert stemmed.scores_BxK[0, 0] > scores_BxK[0, 0]


def test_unknown_words_and_more_passages_than_there_are():
  found = Bm25Retriever(TEXTS).retrieve(["cat", "xyz", ""], k=7)
  assert found.ids_BxK.shape == (3, 7)
  assert (found.ids_BxK[:, 5:] == -2).all()
  assert np.isneginf(found.scores_BxK[:, 5:]).all()
  assert not found.scores_BxK[1:, :5].any()


def test_an_empty_corpus_is_refused():
  with pytest.raises(ValueError, match="at least one passage"):
    Bm25Retriever([])
