"""The ten minutes of docs/own_corpus.md, run as written."""

import json
import pathlib
import re
import shlex

import pytest

from realm_jax import main
from tests.knowledge_base import tiny_models

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "own_corpus.md"
SECTION = GUIDE.read_text("utf-8").partition("## Ten minutes")[2].partition("\n## ")[0]


def blocks(language):
  found = re.findall(r"^```(\w*)\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
  return [block for of, block in found if of == language]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
  """Runs commands in a folder with texts; returns what each prints."""
  monkeypatch.chdir(tmp_path)
  (tmp_path / "texts").mkdir()
  (tmp_path / "texts" / "wing.txt").write_text("Wings\n\nFlutter of a wing is caused by speed.\n")

  def outputs(commands):
    said = []
    for words in map(shlex.split, commands.splitlines()):
      assert words[0] == "realm" and main.main(words[1:]) == 0, capsys.readouterr().err
      said.append(capsys.readouterr().out)
    return said

  return outputs


def test_the_commands_and_the_program_do_what_the_guide_says(run, tmp_path, capsys):
  (record,) = re.findall(r'^`(\{"id".*)`', SECTION, re.MULTILINE)
  (tmp_path / "notes.jsonl").write_text(record)
  said = run(blocks("")[0])
  assert len(said) == 6
  assert "wing.txt" in said[1] and "1 added" in said[2] and "1 unchanged" in said[5]
  assert json.loads(record)["id"] in said[3] and "wing.txt" not in said[3]
  exec(blocks("python")[0], {})
  assert re.search(r"n1 A note .*'year': 1958", capsys.readouterr().out)


def test_with_an_encoder_and_a_reader_the_guide_searches_by_meaning_and_answers(
  run, tmp_path, capsys
):
  tiny_models.write(tmp_path / "all-MiniLM-L6-v2")
  tiny_models.write(tmp_path / "runs" / "squad" / "finetune", reads=True)
  question = {"question": "what causes the flutter of a wing", "answer": "speed"}
  (tmp_path / "questions.jsonl").write_text(json.dumps(question))
  said = run(blocks("")[1])
  assert "wing.txt" in said[1], "no word of the question is in the text"
  assert "wing.txt" in said[3] and "p = " in said[3]
  exec(blocks("python")[1], {})
  printed = capsys.readouterr().out
  assert "['wing.txt']" in printed and re.search(r"fused +1\.000", printed)
