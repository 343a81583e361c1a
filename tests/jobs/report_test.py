import json

from realm_jax.jobs.answering.report import report


def test_a_report_of_a_workdir(tmp_path):
  rows = [{"step": step, "seconds": step, "loss/total": 2.0} for step in (1, 2)]
  lines = "".join(json.dumps(row) + "\n" for row in rows)
  (tmp_path / "metrics.jsonl").write_text(lines + '{"step": 3, "sec')
  path = report(str(tmp_path))
  page = open(path, encoding="utf-8").read()
  assert "2 steps" in page
