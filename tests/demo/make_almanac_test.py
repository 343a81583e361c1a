import json
import os
import subprocess
import sys

import pytest

from realm_jax.demo import make_almanac, world

FILES = {
  "documents.jsonl",
  "training.jsonl",
  "heldout.jsonl",
  "training_questions.jsonl",
  "heldout_questions.jsonl",
  "values.jsonl",
  "manifest.json",
}


@pytest.fixture(scope="module")
def small_world():
  return world.make_world(seed=5, num_invented_entities=100)


@pytest.fixture(scope="module")
def written(small_world, tmp_path_factory):
  directory = tmp_path_factory.mktemp("world") / "made"
  make_almanac.write_world(small_world, directory)
  return directory


def read(path):
  return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def spanned(record):
  content = record["text"].encode()
  return [content[start:limit].decode() for start, limit in record["spans"]]


def test_files_are_the_same_in_another_process(written, tmp_path):
  program = (
    "import sys\n"
    "from realm_jax.demo import make_almanac, world\n"
    "made = world.make_world(seed=5, num_invented_entities=100)\n"
    "make_almanac.write_world(made, sys.argv[1])\n"
  )
  environment = {**os.environ, "PYTHONHASHSEED": "123", "PYTHONPATH": os.pathsep.join(sys.path)}
  subprocess.run([sys.executable, "-c", program, tmp_path], env=environment, check=True)
  assert {path.name for path in tmp_path.iterdir()} == FILES
  for name in FILES:
    assert (tmp_path / name).read_bytes() == (written / name).read_bytes()


def test_documents_state_every_fact_once(small_world, written):
  documents = read(written / "documents.jsonl")
  assert [d["title"] for d in documents] == list(small_world.by_subject)
  assert len({d["id"] for d in documents}) == len(documents)
  for document in documents:
    facts = small_world.by_subject[document["title"]]
    assert spanned(document) == [fact.value for fact in facts]
    sentences = document["text"].split(". ")
    assert len(sentences) == len(facts)
    assert all(document["title"] in sentence for sentence in sentences)


def test_held_out_questions_and_their_passages(small_world, written):
  questions = read(written / "heldout.jsonl")
  texts = {d["title"]: d["text"] for d in read(written / "documents.jsonl")}
  assert [q["id"] for q in questions] == [f.fact_id for f in small_world.facts if f.held_out]
  for question in questions:
    assert spanned(question) == [question["answer"]]
    assert question["passage"] in texts[question["subject"]]
    assert question["answer"] in question["passage"]
    assert question["passage"] != question["text"]
  (seed,) = [question for question in questions if question["id"] == world.SEED_FACT_ID]
  assert seed["text"] == "The pound is the currency of the United Kingdom."
  assert seed["spans"] == [[4, 9]]
  assert (seed["answer"], seed["kind"], seed["relation"]) == ("pound", "real", "currency")


def test_edits_change_documents_only_where_stated(small_world, written, tmp_path):
  edited = world.edit(small_world, seed=0, num_edits=20)
  make_almanac.write_edits(small_world, edited, tmp_path)
  assert {path.name for path in tmp_path.iterdir()} == {"documents.jsonl", "questions.jsonl"}
  questions = {q["id"]: q for q in read(tmp_path / "questions.jsonl")}
  assert len(questions) == 20
  before = read(written / "documents.jsonl")
  after = read(tmp_path / "documents.jsonl")
  changed = set()
  for old, new in zip(before, after, strict=True):
    assert (old["id"], old["title"]) == (new["id"], new["title"])
    facts = small_world.by_subject[old["title"]]
    for fact, was, now in zip(facts, spanned(old), spanned(new), strict=True):
      if was != now:
        changed.add(fact.fact_id)
        assert questions[fact.fact_id]["old_answer"] == was
        assert questions[fact.fact_id]["answer"] == now
        assert questions[fact.fact_id]["passage"] in new["text"]
    if not any(fact.fact_id in questions for fact in facts):
      assert old == new
  assert changed == set(questions)
  for question in questions.values():
    assert spanned(question) == [question["answer"]]
