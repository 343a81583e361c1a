import numpy as np
import pytest

from realm_jax.corpus.passage_store import PassageStore, PassageStoreWriter
from realm_jax.data.questions import Question
from realm_jax.indexing.generation_scorecard import (
  drift,
  hits,
  hubness,
  kept_share,
  prior_figures,
)
from realm_jax.tokenization import SPECIAL_TOKENS, WordPieceTokenizer


def test_hubness_of_even_and_of_uneven_retrieval():
  even = np.arange(12).reshape(6, 2)
  assert hubness(even, num_passages=12) == {"hub_share": pytest.approx(1 / 6), "hub_skewness": 0}
  uneven = np.array([[0, i] for i in range(1, 7)])
  figures = hubness(uneven, num_passages=12)
  assert figures["hub_share"] == 1
  assert figures["hub_skewness"] > 1
  counts = np.array([6, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0])
  expected = ((counts - 1) ** 3).mean() / ((counts - 1) ** 2).mean() ** 1.5
  assert figures["hub_skewness"] == pytest.approx(expected)


def test_slots_without_a_passage_do_not_count():
  assert hubness(np.array([[0, -2], [-1, 1]]), num_passages=2)["hub_share"] == 0.5


def test_drift_is_about_directions():
  before = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
  assert drift(before, 3 * before) == pytest.approx(0, abs=1e-6)
  assert drift(before, -before) == pytest.approx(2)
  assert drift(np.eye(4), np.roll(np.eye(4), 1, axis=0)) == pytest.approx(1)


def test_prior_figures():
  even = prior_figures(np.zeros((3, 4)))
  assert even == {"null_mass": pytest.approx(0.25), "entropy": pytest.approx(np.log(4))}
  one = prior_figures(np.array([[50.0, 0, -np.inf]]))
  assert one["null_mass"] == pytest.approx(1) and one["entropy"] == pytest.approx(0, abs=1e-9)
  shifted = prior_figures(np.array([[1001.0, 1000.0]]))
  assert shifted["null_mass"] == pytest.approx(1 / (1 + np.exp(-1)))


def test_kept_share_knows_no_order():
  assert kept_share(np.array([[1, 2]]), np.array([[2, 1]])) == 1
  assert kept_share(np.array([[1, 2], [3, -2]]), np.array([[2, 5], [3, -2]])) == pytest.approx(
    2 / 3
  )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  directory = tmp_path_factory.mktemp("passages")
  texts = ("In 1912, Rome.", "It says: Oslo is old.", "OSLO, 1 or 2.", "In Oslo.")
  tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, *"in 1912 , rome oslo is old 1 or 2 .".split()])
  writer = PassageStoreWriter(directory, tokenizer=tokenizer, max_passage_length=16)
  for uid, (text, ids) in enumerate(zip(texts, tokenizer.encode_batch(texts), strict=True)):
    writer.append(title="", text=text, title_ids=np.zeros(0), body_ids=ids, uid=uid)
  writer.finish(counts={})
  tokenizer.save(directory / "vocabulary")
  return PassageStore(directory)


@pytest.mark.parametrize(
  ("ids", "question", "hit"),
  [
    ((0, 1), {"text": "?", "answers": ("1",)}, False),
    ((0, 2), {"text": "?", "answers": ("1",)}, True),
    ((0, 3), {"text": "?", "answers": (r"19\d\d",), "regex": True}, True),
    ((3, 2, 0), {"text": "?", "answers": (r"19\d\d",), "regex": True}, False),
    ((1, 0), {"text": "Oslo is old.", "answers": ("Oslo",), "span": (0, 4)}, False),
    ((1, 0, 3), {"text": "Oslo is old.", "answers": ("Oslo",), "span": (0, 4)}, True),
    ((0, 2, 3), {"text": "Oslo is old.", "answers": ("Oslo",), "span": (0, 4)}, False),
  ],
)
def test_passages_are_right_as_in_evaluations(store, ids, question, hit):
  asked = [Question(id="q", **question)]
  assert hits(asked, np.array([ids]), k=2, store=store).tolist() == [hit]
