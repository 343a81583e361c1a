import hashlib
import json
import pathlib

import pytest

from realm_jax.jobs.answering.reproduce import reproduce

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRANFIELD = ROOT.parent / "shared/data/cranfield"
INPUT = '{"id": "1", "figures": {"hits": 0.5}}\n'
TABLE = """
[twice]
document = "docs/evaluation.md"
commands = ["realm compare_runs --first=a.jsonl --second=a.jsonl --output=table.json"]
figures = "table.json"
[twice.inputs]
"a.jsonl" = "{digest}"
[twice.expected]
"0.mean" = [{low}, 0.6]
"""


@pytest.fixture
def make_table(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "a.jsonl").write_text(INPUT)

  def make(*, low=0.4, digest=hashlib.sha256(INPUT.encode()).hexdigest()):
    (tmp_path / "table.toml").write_text(TABLE.format(low=low, digest=digest))
    return "table.toml"

  return make


def test_a_figure_in_its_interval_is_reproduced(make_table, capsys):
  assert reproduce("twice", table=make_table()) == {"0.mean": 0.5}
  assert "reproduced: 0.mean = 0.5, published 0.4 to 0.6" in capsys.readouterr().out


@pytest.mark.skipif(not CRANFIELD.exists(), reason="needs the data in ../shared/data")
def test_a_published_result_is_reproduced(tmp_path, monkeypatch):
  pytest.importorskip("bm25s", reason="the extra bm25 is not installed")
  pytest.importorskip("ir_measures", reason="the extra trec is not installed")
  monkeypatch.chdir(tmp_path)
  (tmp_path / "cranfield").symlink_to(CRANFIELD)
  figures = reproduce("cranfield_bm25", table=str(ROOT / "benchmarks/reproductions.toml"))
  assert set(figures) == {"figures.ndcg@10", "figures.recall@100"}


def test_what_is_not_reproduced_is_refused(make_table, tmp_path, monkeypatch):
  with pytest.raises(ValueError, match="has no 'thrice'; choose from twice"):
    reproduce("thrice", table=make_table())
  with pytest.raises(ValueError, match="SHA-256 .*, but twice was made from 000000000000"):
    reproduce("twice", table=make_table(digest="0" * 64))
  monkeypatch.setattr("subprocess.run", lambda *_, **__: None)
  (tmp_path / "table.json").write_text(json.dumps([{"mean": 0.5}]))
  with pytest.raises(ValueError, match=r"not reproduced: 0.mean = 0.5, published 0.55 to 0.6"):
    reproduce("twice", table=make_table(low=0.55))
