"""benchmarks/reproduce.py: commands run once, and figures are compared."""

import hashlib
import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
INPUT = '{"id": "1", "figures": {"hits": 0.5}}\n'
TABLE = """
[words]
same = "a.jsonl"
[steps]
compare = ["realm {job} --first={{first}} --second={{same}} --output={{output}}"]
[files]
"a.jsonl" = "{digest}"
"unused.jsonl" = "0"

[twice]
document = "docs/evaluation.md"
commands = [{{ do = "compare", first = "a.jsonl", output = "table.json" }}]
[twice.expected."table.json"]
"0.mean" = [{low}, 0.6]

[again]
after = "{before}"
document = "docs/evaluation.md"
commands = ["realm {job} --first=b.jsonl --second=a.jsonl --output=other.json"]
[again.expected."other.json"]
"0.mean" = [0.25, 0.25]
[again.expected."table.json"]
"0.mean" = [0.5, 0.5]
[again.expected."a.jsonl"]
"-1.figures.hits" = [0.5, 0.5]
"""
JOB = """
import json

def compare(*, first: str, second: str, output: str):
  means = [json.loads(open(path).read())["figures"]["hits"] for path in (first, second)]
  open(output, "w").write(json.dumps([{"mean": means[0], "other_mean": means[1]}]))
"""


@pytest.fixture(scope="module")
def benchmark():
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / "benchmarks")
    import reproduce

    yield reproduce
    patch.delitem(sys.modules, "reproduce")


@pytest.fixture
def reproduce(benchmark):
  return lambda name, table=ROOT / "benchmarks/reproductions.toml": benchmark.reproduce(
    name, benchmark.read_table(table)
  )


@pytest.fixture
def make_table(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "compare.py").write_text(JOB)
  (tmp_path / "a.jsonl").write_text(INPUT)
  (tmp_path / "b.jsonl").write_text(INPUT.replace("0.5", "0.25"))

  def make(*, low=0.4, digest=hashlib.sha256(INPUT.encode()).hexdigest(), before="twice"):
    (tmp_path / "table.toml").write_text(
      TABLE.format(job=tmp_path / "compare.py", low=low, digest=digest, before=before)
    )
    return tmp_path / "table.toml"

  return make


def test_a_figure_in_its_interval_is_reproduced(reproduce, make_table, capsys):
  assert reproduce("twice", table=make_table()) == {"table.json 0.mean": 0.5}
  line = "reproduced: table.json 0.mean = 0.5, published 0.4 to 0.6"
  assert line in capsys.readouterr().out


def test_a_command_that_has_ended_well_is_not_run_again(
  benchmark, reproduce, make_table, tmp_path, capsys
):
  table = make_table()
  (tmp_path / "b.jsonl").rename(tmp_path / "c.jsonl")
  with pytest.raises(ValueError, match=r"exit status 1, see above: realm \S+/compare.py --first=b"):
    reproduce("again", table=table)
  (tmp_path / "c.jsonl").rename(tmp_path / "b.jsonl")
  capsys.readouterr()
  reproduce("again", table=table)
  shown = capsys.readouterr().out
  job = tmp_path / "compare.py"
  assert f"listed in runs/reproduced.txt, not run again: realm {job} --first=a.jsonl" in shown
  assert f"$ realm {job} --first=b.jsonl" in shown
  assert f"$ realm {job} --first=a.jsonl" not in shown


def test_what_is_not_reproduced_is_refused(reproduce, make_table, tmp_path):
  with pytest.raises(ValueError, match="no result 'thrice'; choose from twice, again"):
    reproduce("thrice", table=make_table())
  for before in ("again", "thrice"):
    with pytest.raises(ValueError, match=f"again comes after '{before}', which is itself or miss"):
      reproduce("twice", table=make_table(before=before))
  with pytest.raises(ValueError, match="SHA-256 .*, but twice was made from 000000000000"):
    reproduce("twice", table=make_table(digest="0" * 64))
  with pytest.raises(ValueError, match="SHA-256 .*, but again was made from 000000000000"):
    reproduce("again", table=make_table(digest="0" * 64))
  (tmp_path / "runs").mkdir()
  (tmp_path / "runs/reproduced.txt").write_text(
    f"realm {tmp_path}/compare.py --first=a.jsonl --second=a.jsonl --output=table.json\n"
  )
  (tmp_path / "table.json").write_text(json.dumps([{"mean": 0.5}]))
  with pytest.raises(
    ValueError, match=r"not reproduced: table.json 0.mean = 0.5, published 0.55 to 0.6"
  ):
    reproduce("twice", table=make_table(low=0.55))
