import numpy as np
import pytest

from realm_jax.answering.answerer import EditedSearcher
from realm_jax.devices.datatypes import MISSING_PASSAGE_ID
from realm_jax.index import fused_searcher
from realm_jax.index.fused_searcher import Hybrid
from realm_jax.index.fusion import Spread, fuse, fuse_scores
from realm_jax.index.vectors.exact_searcher import ExactSearcher
from realm_jax.index.words.bm25 import Bm25Retriever
from realm_jax.index.words.postings import Postings

MISSING = MISSING_PASSAGE_ID
RNG = np.random.default_rng(0)
DENSE_3xN, SPARSE_3xN = RNG.normal(size=(2, 3, 40))
WORDS = [f"w{i}" for i in range(30)]
TEXTS = [" ".join(RNG.choice(WORDS, 8)) for _ in range(60)]
EMBEDDINGS = RNG.normal(size=(60, 4)).astype(np.float32)
QUERIES = RNG.normal(size=(2, 4)).astype(np.float32)
QUESTIONS = ["w3 w4 [MASK]", "w9 w11 w12"]


def hybrid(*, texts=TEXTS, embeddings=EMBEDDINGS):
  return Hybrid(bm25=Bm25Retriever([Postings.build(texts)]), embeddings_IxE=embeddings)


def search(of, *, k, questions=QUESTIONS, queries=QUERIES, base=None):
  base = base or ExactSearcher(EMBEDDINGS)
  return of.searcher(base, questions).search(queries, k)


def expected(questions=QUESTIONS, *, texts=TEXTS, embeddings=EMBEDDINGS):
  bm25 = Bm25Retriever([Postings.build(texts)])
  sparse = np.stack([bm25.scores(question.replace("[MASK]", "")) for question in questions])
  return fuse_scores(QUERIES @ embeddings.T, sparse)


def test_scores_of_all_passages_are_fused():
  found, scores = search(hybrid(), k=70), expected()
  np.testing.assert_array_equal(found.ids_BxK[:, :60], np.argsort(-scores, kind="stable"))
  np.testing.assert_allclose(found.scores_BxK[:, :60], -np.sort(-scores), rtol=1e-5, atol=1e-5)
  assert (found.ids_BxK[:, 60:] == MISSING).all()


def test_a_large_corpus_fuses_the_best_of_each_with_nearly_the_same_scores(monkeypatch):
  monkeypatch.setattr(fused_searcher, "_DEPTH", 20)
  of = hybrid()
  every = search(of, k=5)
  monkeypatch.setattr(fused_searcher, "MOST_SCORED", 59)
  found = search(of, k=5)
  np.testing.assert_array_equal(found.ids_BxK, every.ids_BxK)
  np.testing.assert_allclose(found.scores_BxK, every.scores_BxK, atol=0.1)
  # What only BM25 finds is scored by its embedding, too.
  none = ExactSearcher(np.full((1, 4), -1e6, np.float32))
  assert set(search(of, k=5, base=none).ids_BxK[0]) & set(every.ids_BxK[0])


@pytest.mark.parametrize("embeddings", [None, EMBEDDINGS])
def test_a_query_without_a_text_is_ranked_by_its_embedding(embeddings):
  of = hybrid(embeddings=embeddings)
  found = search(of, k=3, questions=QUESTIONS[:1])
  alone = ExactSearcher(EMBEDDINGS).search(QUERIES, 3)
  np.testing.assert_array_equal(found.ids_BxK[1], alone.ids_BxK[1])
  assert found.ids_BxK[0].tolist() != alone.ids_BxK[0].tolist()
  both = search(of, k=3)
  np.testing.assert_array_equal(found.ids_BxK[0], both.ids_BxK[0])


def test_without_embeddings_what_shares_no_word_follows_by_its_embedding():
  of = hybrid(embeddings=None)
  words = of.bm25.retrieve(QUESTIONS, k=60).ids_BxK
  near = ExactSearcher(EMBEDDINGS).search(QUERIES, 60).ids_BxK
  for k in (3, 60, 70):
    found = search(of, k=k)
    for row in range(2):
      others = [i for i in near[row] if i not in words[row]]
      wanted = [*words[row][words[row] >= 0], *others, *[MISSING] * 10][:k]
      assert found.ids_BxK[row].tolist() == wanted
    assert (np.diff(found.scores_BxK[found.scores_BxK > -np.inf].reshape(2, -1)) <= 0).all()


@pytest.mark.parametrize("most", [10, 1000])
def test_edits_are_searched_as_in_a_new_corpus(monkeypatch, most):
  monkeypatch.setattr(fused_searcher, "MOST_SCORED", most)
  texts, embeddings = [*TEXTS, "w3 w4 w3"], np.append(EMBEDDINGS, QUERIES[:1], axis=0)
  texts[7], embeddings[7] = "w9 w11 w12 w9", QUERIES[1]
  of = hybrid().edited(
    hidden=[7, 20], written={7: texts[7], 60: texts[60]}, embeddings_IxE=embeddings
  )
  base = EditedSearcher(ExactSearcher(EMBEDDINGS), [7, 20], {7: embeddings[7], 60: embeddings[60]})
  found = search(of, k=59, base=base)
  assert found.ids_BxK[:, 0].tolist() == [60, 7]
  if most > 10:
    kept = [*range(20), *range(21, 61)]
    scores = expected(texts=[texts[i] for i in kept], embeddings=embeddings[kept])
    ids = np.array(kept)[np.argsort(-scores, kind="stable")]
    np.testing.assert_array_equal(found.ids_BxK, ids[:, :59])
  assert 20 not in found.ids_BxK


def test_each_query_weighs_both_scores_whatever_their_scale():
  fused = fuse_scores(DENSE_3xN, SPARSE_3xN)
  scales_Bx1 = np.array([[1e-3], [1.0], [1e4]])
  np.testing.assert_allclose(
    fuse_scores(scales_Bx1 * DENSE_3xN - 5, 7 * SPARSE_3xN + 1), fused, atol=1e-6
  )
  for query in range(3):
    np.testing.assert_allclose(
      fuse_scores(DENSE_3xN[query], SPARSE_3xN[query]), fused[query], atol=1e-12
    )
  for weight, alone in ((1.0, DENSE_3xN), (0.0, SPARSE_3xN)):
    only = fuse_scores(DENSE_3xN, SPARSE_3xN, weight=weight)
    np.testing.assert_array_equal(np.argsort(only), np.argsort(alone))
    assert only.mean(axis=-1) == pytest.approx(0) and only.std(axis=-1) == pytest.approx(1)


def test_spreads_of_parts_add_up_to_that_of_all():
  parts = [Spread.of(DENSE_3xN[:, :7]), Spread.of(DENSE_3xN[:, 7:7]), Spread.of(DENSE_3xN[:, 7:])]
  spreads = parts[0].plus(parts[1]).plus(parts[2]), Spread.of(SPARSE_3xN)
  fused = fuse(DENSE_3xN[:, 5:9], SPARSE_3xN[:, 5:9], spreads=spreads)
  np.testing.assert_allclose(fused, fuse_scores(DENSE_3xN, SPARSE_3xN)[:, 5:9], atol=1e-12)


@pytest.mark.parametrize("score", [0, 1 / 3, 1e6])
def test_scores_that_are_all_equal_do_not_count(score):
  equal = np.full(DENSE_3xN.shape, score, np.float32)
  fused = fuse_scores(equal, SPARSE_3xN)
  np.testing.assert_allclose(fused, fuse_scores(DENSE_3xN, SPARSE_3xN, weight=0) * 0.4, atol=1e-6)
