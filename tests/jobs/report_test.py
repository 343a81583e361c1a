import json

import pytest

from realm_jax.jobs.answering.report import report


def test_a_report_of_a_workdir(tmp_path):
  rows = [{"step": step, "seconds": step, "loss/total": 2.0} for step in (1, 2)]
  lines = "".join(json.dumps(row) + "\n" for row in rows)
  (tmp_path / "metrics.jsonl").write_text(lines + '{"step": 3, "sec')
  spent = {"step": 1, "seconds": 2.0, "resumed": 0, "spent": {"step": 1.5, "data": 0.5}}
  (tmp_path / "goodput.jsonl").write_text(json.dumps(spent) + "\n")
  path = report(str(tmp_path))
  page = open(path, encoding="utf-8").read()
  assert "2 steps" in page and "75.0%" in page


def test_a_directory_without_metrics_is_refused(tmp_path):
  with pytest.raises(FileNotFoundError, match="no metrics.jsonl in .*; give the workdir"):
    report(str(tmp_path))
