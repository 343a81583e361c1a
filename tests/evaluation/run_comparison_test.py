import json

import numpy as np
import pytest

from realm_jax.evaluation.run_comparison import compare


def evaluation(directory, ids=range(20), **figures):
  """Writes what `realm evaluate` leaves, one value of each metric per question."""
  directory.mkdir(parents=True)
  lines = [
    json.dumps({"id": str(i), "figures": dict(zip(figures, values, strict=True))})
    for i, values in zip(ids, zip(*figures.values(), strict=True), strict=True)
  ]
  (directory / "predictions.jsonl").write_text("\n".join(lines) + "\n")


def rows(table):
  return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_sets_are_compared_question_by_question_with_holms_correction(tmp_path):
  better, worse = np.r_[np.ones(10), np.zeros(10)], np.zeros(20)
  few = np.r_[np.ones(5), np.zeros(15)]
  evaluation(tmp_path / "hybrid/nq", hits=better, extra=better)
  evaluation(tmp_path / "hybrid/wq", hits=few, extra=few)
  for name in ("nq", "wq"):
    evaluation(tmp_path / "bm25" / name, ids=range(19, -1, -1), hits=worse)
  hybrid, bm25 = str(tmp_path / "hybrid"), str(tmp_path / "bm25")
  found = rows(compare(hybrid, bm25))
  assert [row[:5] for row in found] == [
    ["nq 20", "hits", "0.5000", "0.0000", "+0.5000"],
    ["wq 20", "hits", "0.2500", "0.0000", "+0.2500"],
    ["all 40", "hits", "0.3750", "0.0000", "+0.3750"],
  ]
  p_nq, p_wq, p_both = (float(row[6]) for row in found)
  assert (p_nq, p_wq) == (pytest.approx(2 / 2**10, abs=1e-4), pytest.approx(2 / 2**5, abs=1e-4))
  assert p_both < p_nq
  assert [float(row[7]) for row in found] == pytest.approx([4 / 2**10, p_wq, p_both], abs=1e-4)
  assert [row[4] for row in rows(compare(bm25, hybrid))] == ["-0.5000", "-0.2500", "-0.3750"]
  ((_, _, mean, other_mean, *_),) = rows(compare(f"{hybrid}/nq", f"{bm25}/nq"))
  assert (mean, other_mean) == ("0.5000", "0.0000")


def test_equal_ids_are_told_apart_by_their_questions(tmp_path):
  for name, right in (("one", "ab"), ("other", "c")):
    (tmp_path / name).mkdir()
    records = [
      {"id": "None", "question": q, "figures": {"hits": float(q in right)}} for q in "abcd"[::-1]
    ]
    (tmp_path / name / "predictions.jsonl").write_text("\n".join(map(json.dumps, records)))
  (row,) = rows(compare(str(tmp_path / "one"), str(tmp_path / "other")))
  assert row[:5] == ["4", "hits", "0.5000", "0.2500", "+0.2500"]


def test_a_metric_that_some_questions_lack_is_left_out(tmp_path):
  evaluation(tmp_path / "one", hits=np.ones(20), extra=np.ones(20))
  evaluation(tmp_path / "other", hits=np.zeros(20), extra=np.zeros(20))
  file = tmp_path / "one" / "predictions.jsonl"
  first, last = file.read_text().rstrip().rsplit("\n", 1)
  file.write_text(f"{first}\n{last.replace('extra', 'more')}\n")
  for pair in (("one", "other"), ("other", "one")):
    (row,) = rows(compare(*(str(tmp_path / name) for name in pair)))
    assert row[:2] == ["20", "hits"]


@pytest.mark.parametrize(
  ("first", "second", "said"),
  [
    ("one", "absent", r"no \S+absent/predictions.jsonl"),
    ("absent", "one", "no evaluation at"),
    ("one", "other", "20 questions, .* 3, and 3 have the same id"),
    ("one", "charm", "no metric in common"),
    ("one", "broken", "broken/predictions.jsonl is not what `realm evaluate` writes"),
    ("one", "nan", "nan/predictions.jsonl is not .*7 has metrics that are no numbers"),
    ("one", "word", "word/predictions.jsonl is not .*'high'"),
    ("empty", "one", "no predictions.jsonl in"),
  ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, first, second, said):
  evaluation(tmp_path / "one", hits=np.zeros(20))
  evaluation(tmp_path / "other", ids=range(3), hits=np.zeros(3))
  evaluation(tmp_path / "charm", charm=np.zeros(20))
  evaluation(tmp_path / "nan", hits=[0.0] * 7 + [float("nan")] + [0.0] * 12)
  evaluation(tmp_path / "word", hits=["high"] * 20)
  (tmp_path / "broken").mkdir()
  (tmp_path / "broken" / "predictions.jsonl").write_text('{"id": 1}\n')
  (tmp_path / "empty").mkdir()
  with pytest.raises((FileNotFoundError, ValueError), match=said):
    compare(str(tmp_path / first), str(tmp_path / second))
