import math

import numpy as np
import pytest

from realm_jax.data.questions import Question
from realm_jax.evaluation.document_ranking import document_scores, read_run, run_text

pytest.importorskip("ir_measures", reason="the extra trec is not installed")

RNG = np.random.default_rng(0)
DOCUMENTS = [f"d{i:02}" for i in range(30)]
JUDGEMENTS = {
  f"q{q}": {d: int(RNG.integers(0, 3)) for d in [*RNG.permutation(DOCUMENTS)[:8].tolist(), "d00"]}
  for q in range(40)
}
# Best first; most scores occur several times, in an order that is not alphabetical.
RUN = {
  query: dict(
    zip(
      RNG.permutation(DOCUMENTS)[:15].tolist(),
      sorted(RNG.integers(0, 4, 15).astype(float).tolist(), reverse=True),
      strict=True,
    )
  )
  for query in JUDGEMENTS
}


def test_every_metric_is_that_of_the_run_s_own_order_however_many_scores_are_equal(tmp_path):
  expected = np.array([_by_hand(list(RUN[q]), JUDGEMENTS[q]) for q in RUN])
  (tmp_path / "run.trec").write_text(run_text(RUN, tag="x"))
  for run in (RUN, read_run(tmp_path / "run.trec")):
    queries = [Question(id=query, text="", answers=()) for query in RUN]
    scores = document_scores(run, JUDGEMENTS, queries, recall_at=(1, 5))
    found = np.stack([scores[n] for n in ("ndcg@10", "mrr@10", "recall@1", "recall@5")], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_names_with_any_character_are_told_apart():
  judgements = {"q": {"d": 1}, "q\0a": {"d\0a": 1, "d\0b": 0}}
  run = {"q": {"d\0b": 2.0, "d": 1.0}, "q\0a": {"d": 3.0, "d\0b": 2.0, "d\0a": 1.0}}
  queries = [Question(id=query, text="", answers=()) for query in run]
  scores = document_scores(run, judgements, queries, recall_at=(2, 3))
  assert scores["mrr@10"].tolist() == pytest.approx([1 / 2, 1 / 3])
  assert scores["ndcg@10"].tolist() == pytest.approx([1 / math.log2(3), 1 / 2])
  assert [scores[f"recall@{k}"].tolist() for k in (2, 3)] == [[1, 0], [1, 1]]


def test_a_run_file_is_ordered_by_score_then_by_line(tmp_path):
  (tmp_path / "run.trec").write_text("q 0 b 1 1 x\nq 0 c 2 2 x\nq 0 a 3 1 x\n")
  assert list(read_run(tmp_path / "run.trec")["q"]) == ["c", "b", "a"]


@pytest.mark.parametrize(
  ("line", "message"),
  [
    ("q Q0 a 3 0.5 x", "line 3 ranks document 'a' for query 'q', as an earlier line does"),
    ("q Q0 a 3 2 x", "line 3 ranks document 'a'"),
    ("q Q0 c 3 nan x", "line 3 is not .*: its score is NaN"),
    ("q Q0 c 3 best x", "line 3 is not .*'best'"),
  ],
)
def test_what_has_two_scores_or_none_is_not_ranked_by_one_of_them(tmp_path, line, message):
  (tmp_path / "run.trec").write_text(f"q Q0 a 1 2 x\nq Q0 b 2 1 x\n{line}\n")
  with pytest.raises(ValueError, match=message):
    read_run(tmp_path / "run.trec")


def _by_hand(ranking, grades):
  gains = [grades.get(document, 0) for document in ranking]
  ideal = sorted(grades.values(), reverse=True)
  dcg, best = (
    sum(gain / math.log2(place + 2) for place, gain in enumerate(g[:10])) for g in (gains, ideal)
  )
  first = next((1 / (1 + place) for place, gain in enumerate(gains[:10]) if gain), 0)
  relevant = sum(grade > 0 for grade in grades.values())
  return dcg / best, first, *(sum(g > 0 for g in gains[:k]) / relevant for k in (1, 5))


@pytest.mark.parametrize("query", ["q", "my query"])
def test_a_run_that_is_written_is_read_whatever_the_names(tmp_path, query):
  names = ["a", "my notes.txt", "two  spaces", "a\u00a0b", "a\u2028b"]
  run = {query: {name: float(-place) for place, name in enumerate(names)}}
  file = tmp_path / "run.trec"
  file.write_text(run_text(run, tag="BM25, fused"), encoding="utf-8")
  assert read_run(file) == run and list(read_run(file)[query]) == names
  file.write_text("\ufeffq Q0  a\t1 2 x\r\n\r\n", encoding="utf-8", newline="")
  assert read_run(file) == {"q": {"a": 2.0}}
  file.write_text("q Q0 my notes.txt 1 2 x\n")
  with pytest.raises(ValueError, match="line 1 is not .*tabs"):
    read_run(file)
