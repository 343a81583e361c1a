import json

import numpy as np
import pytest

from realm_jax.jobs.answering.compare_runs import compare_runs


def evaluation(directory, **figures):
  """Writes what `realm evaluate` leaves, one value of each figure per question."""
  directory.mkdir(parents=True)
  lines = [
    json.dumps({"id": str(i), "figures": dict(zip(figures, values, strict=True))})
    for i, values in enumerate(zip(*figures.values(), strict=True))
  ]
  (directory / "predictions.jsonl").write_text("\n".join(lines) + "\n")
  return str(directory)


def test_sets_are_compared_question_by_question_with_holms_correction(tmp_path, capsys):
  better, worse = np.r_[np.ones(10), np.zeros(10)], np.zeros(20)
  few = np.r_[np.ones(5), np.zeros(15)]
  hybrid = [
    evaluation(tmp_path / "hybrid/nq", hits=better, extra=better),
    evaluation(tmp_path / "hybrid/wq", hits=few, extra=few),
  ]
  bm25 = [evaluation(tmp_path / f"bm25/{name}", hits=worse) for name in ("nq", "wq")]
  rows = compare_runs(first=hybrid, second=bm25, output=str(tmp_path / "table.json"))
  assert [(row["figure"], row["questions"]) for row in rows] == [*[("hits", 20)] * 2, ("hits", 40)]
  assert [row["difference"] for row in rows] == [0.5, 0.25, 0.375]
  p_nq, p_wq, p_both = (row["p_value"] for row in rows)
  assert (p_nq, p_wq) == (pytest.approx(2 / 2**10), pytest.approx(2 / 2**5))
  assert p_both < p_nq
  assert [row["holm_p_value"] for row in rows] == pytest.approx([2 * p_nq, p_wq, p_both])
  both = compare_runs(first=[str(tmp_path / "hybrid")], second=[str(tmp_path / "bm25")])
  assert [row["difference"] for row in both] == [0.5, 0.25, 0.375]
  assert json.loads((tmp_path / "table.json").read_text())[0]["mean"] == 0.5
  assert "| hits | 0.5000 | 0.0000 | +0.5000 |" in capsys.readouterr().out
  turned = compare_runs(first=bm25, second=hybrid, figures=("hits",))
  assert [row["difference"] for row in turned] == [-0.5, -0.25, -0.375]


def test_run_files_are_compared_by_their_judgements(tmp_path):
  pytest.importorskip("ir_measures", reason="the extra trec is not installed")
  (tmp_path / "qrels").write_text("q1 0 a 1\nq2 0 b 2\n")
  (tmp_path / "one.trec").write_text("q1 Q0 a 1 2 x\nq2 Q0 c 1 2 x\nq2 Q0 b 2 1 x\n")
  (tmp_path / "two.trec").write_text("q1 Q0 c 1 2 x\nq1 Q0 a 2 1 x\n")
  first, second = ([str(tmp_path / f"{name}.trec")] for name in ("one", "two"))
  (row,) = compare_runs(
    first=first, second=second, qrels=[str(tmp_path / "qrels")], figures=["mrr@10"]
  )
  assert (row["mean"], row["other_mean"]) == (0.75, 0.25)
