"""The guides to a knowledge base, run as written."""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import urllib.request

import pytest

from realm_jax import main
from realm_jax.foundations import object_store
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from tests.knowledge_base import tiny_models

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def section(document, title):
  text = (DOCS / document).read_text("utf-8")
  return text.partition(f"## {title}")[2].partition("\n## ")[0]


TEN_MINUTES = section("own_corpus.md", "Ten minutes")
BY_MEANING = section("own_corpus.md", "By meaning")
READER = section("answers.md", "Answers of a reader")
LANGUAGE_MODEL = section("answers.md", "Answers of a language model")
GROWING = section("serving.md", "Growing out of one machine")


def blocks(language, text):
  found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
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
  (record,) = re.findall(r'^`(\{"id".*)`', TEN_MINUTES, re.MULTILINE)
  (tmp_path / "notes.jsonl").write_text(record)
  (commands,) = blocks("", TEN_MINUTES)
  said = run(commands)
  assert len(said) == 6
  assert "wing.txt" in said[1] and "1 added" in said[2] and "1 unchanged" in said[5]
  assert json.loads(record)["id"] in said[3] and "wing.txt" not in said[3]
  (program,) = blocks("python", TEN_MINUTES)
  exec(program, {})
  assert re.search(r"n1 A note .*'year': 1958", capsys.readouterr().out)


def test_with_an_encoder_and_a_reader_the_guide_searches_by_meaning_and_answers(
  run, tmp_path, capsys
):
  tiny_models.write(tmp_path / "all-MiniLM-L6-v2")
  tiny_models.write(tmp_path / "runs" / "squad" / "finetune", reads=True)
  question = {"question": "what causes the flutter of a wing", "answer": "speed"}
  (tmp_path / "questions.jsonl").write_text(json.dumps(question))
  (searching,), (asking,) = blocks("", BY_MEANING), blocks("", READER)
  assert "wing.txt" in run(searching)[1], "no word of the question is in the text"
  create, *commands = asking.splitlines()
  assert create == searching.splitlines()[0]
  answered = run("\n".join(commands))[-1]
  assert "wing.txt" in answered and "of what could be the answer" in answered
  (program,) = blocks("python", READER)
  exec(program, {})
  printed = capsys.readouterr().out
  assert "['wing.txt']" in printed and re.search(r"fused +1\.000", printed)
  (program,) = blocks("python", LANGUAGE_MODEL)
  exec(program, {"library": KnowledgeBase("library")})
  assert capsys.readouterr().out == "Speed [1]. ['wing.txt'] \n"


@pytest.fixture
def texts(emulated_gcs):
  rows = [{"id": str(n), "title": f"Wing {n}", "text": f"Wing {n} flutters."} for n in range(9)]
  file = object_store.absolute("gs://bucket/texts/wings.jsonl")
  file.write_text("\n".join(map(json.dumps, rows)))
  return "gs://bucket/texts"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("texts")
def test_documents_in_a_bucket_are_prepared_embedded_and_served():
  tiny_models.write("gs://bucket/reader", reads=True)
  (commands,) = blocks("", GROWING)
  prepare, build, serve = map(shlex.split, commands.replace("\\\n", "").splitlines())
  assert main.main(prepare[1:]) == 0 and main.main(build[1:]) == 0
  serving = [sys.executable, "-m", "realm_jax.main", *serve[1:], "--port=0"]
  server = subprocess.Popen(serving, stdout=subprocess.PIPE, text=True)
  try:
    assert server.stdout
    address = next(line.strip() for line in server.stdout if line.startswith("http"))
    (found,) = asked(address, "/api/answer", texts=["what flutters"])["explanations"]
    assert found["answers"][0]["text"] and "Wing" in found["passages"][0]["title"]
  finally:
    server.terminate()
    server.wait()


def test_texts_may_be_in_a_bucket_but_not_a_knowledge_base(texts, tmp_path, capsys):
  base = KnowledgeBase.create(tmp_path / "kb", texts, language="en")
  assert len(base) == 9 and base.add(texts).unchanged == 9
  assert main.main(["kb", "create", "gs://bucket/kb", texts]) == 1
  assert "realm kb publish" in capsys.readouterr().err


def asked(address, path, **body):
  content = json.dumps(body).encode() if body else None
  request = urllib.request.Request(address + path, content, {"content-type": "application/json"})
  with urllib.request.urlopen(request, timeout=60) as response:
    return json.load(response)
