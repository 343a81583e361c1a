"""The ten minutes of docs/own_corpus.md, run as written."""

import json
import pathlib
import re
import shlex

from realm_jax import main

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "own_corpus.md"
SECTION = GUIDE.read_text("utf-8").partition("## Ten minutes")[2].partition("\n## ")[0]


def blocks(language):
  return re.findall(rf"^```{language}\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)


def test_the_commands_and_the_program_do_what_the_guide_says(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "texts").mkdir()
  (tmp_path / "texts" / "wing.txt").write_text("Wings\n\nFlutter of a wing is caused by speed.\n")
  (record,) = re.findall(r'^`(\{"id".*)`', SECTION, re.MULTILINE)
  (tmp_path / "notes.jsonl").write_text(record)
  commands = [shlex.split(line) for line in "".join(blocks("")).splitlines()]
  assert len(commands) == 6
  said = []
  for words in commands:
    assert words[0] == "realm" and main.main(words[1:]) == 0, capsys.readouterr().err
    said.append(capsys.readouterr().out)
  assert "wing.txt" in said[1] and "1 added" in said[2] and "1 unchanged" in said[5]
  assert json.loads(record)["id"] in said[3] and "wing.txt" not in said[3]
  (program,) = blocks("python")
  exec(program, {})
  assert re.search(r"n1 A note .*'year': 1958", capsys.readouterr().out)
