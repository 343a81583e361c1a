import gzip
import json
import pathlib

import pytest

from realm_jax.data.question_sets import make_splits, read_raw, split_train, write_splits
from realm_jax.data.questions import MANIFEST_FILE, read_questions

SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data" / "qa"


def record(question, **fields):
  return {"id": fields.pop("id", question), "question": question, "answer": ["x"], **fields}


WEB = (
  '(list (description "Jazmyn \\"J\\" Bieber") (description Jaxon Bieber) (description "a (b)"))'
)


WEB_ANSWERS = ['Jazmyn "J" Bieber', "Jaxon Bieber", "a (b)"]
QAS = [
  {"id": "s", "question": "q", "answers": [{"text": "a"}, {"text": "a"}]},
  {"id": "none", "question": "q", "answers": []},
]


@pytest.mark.parametrize(
  ("name", "content", "expected"),
  [
    (
      "q.jsonl",
      '{"question": "who?", "answer": "he", "kind": "k"}\n\n'
      '{"id": 0, "question": "a", "answer": ["b"]}',
      [
        {"id": "q-1", "question": "who?", "answer": ["he"], "kind": "k"},
        {"id": "0", "question": "a", "answer": ["b"]},
      ],
    ),
    (
      "t.tsv",
      "17\tfactoid\tHow high?\t1,?\\s?000\n",
      [{"id": "17", "question": "How high?", "answer": ["1,?\\s?000"], "regex": True}],
    ),
    (
      "web.json",
      json.dumps([{"utterance": "who?", "targetValue": WEB, "url": "u"}]),
      [{"id": "web-1", "question": "who?", "answer": WEB_ANSWERS}],
    ),
    (
      "devtest.json",
      json.dumps([{"qId": "w1", "qText": "who?", "answers": ["a", "b"]}]),
      [{"id": "w1", "question": "who?", "answer": ["a", "b"]}],
    ),
    (
      "trivia.json",
      '{"Data": [{"QuestionId": "t", "Question": "q", '
      '"Answer": {"Value": "v", "Aliases": ["w", "v"]}}]}',
      [{"id": "t", "question": "q", "answer": ["v", "w"]}],
    ),
    (
      "squad.json",
      json.dumps({"data": [{"title": "The_Title", "paragraphs": [{"context": "c", "qas": QAS}]}]}),
      [{"id": "s", "question": "q", "answer": ["a"], "title": "The Title"}],
    ),
  ],
)
def test_published_formats_are_read(tmp_path, name, content, expected):
  (tmp_path / name).write_text(content)
  assert read_raw(tmp_path / name) == expected
  (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
  assert read_raw(tmp_path / f"{name}.gz") == expected


def test_the_split_is_the_originals():
  # Fingerprints modulo 100,000: 29626, 34568 and 37750.
  questions = ["what type of fuel goes in a zippo", "who is the president", "what is x2?"]
  train, dev = split_train([record(q) for q in questions])
  assert [r["question"] for r in train] == questions[:2]
  assert [r["question"] for r in dev] == questions[2:]


def test_a_set_is_written_with_a_manifest_that_its_reader_checks(tmp_path):
  questions = [record(f"what is x{i}?") for i in range(60)]
  splits = make_splits(questions, [record("é?")], dataset="custom")
  manifest = write_splits(tmp_path, splits, dataset="custom")
  counts = {name: file["questions"] for name, file in manifest["files"].items()}
  assert counts == {
    "train.jsonl": len(splits["train"]),
    "dev.jsonl": len(splits["dev"]),
    "test.jsonl": 1,
  }
  assert counts["train.jsonl"] + counts["dev.jsonl"] == 60
  assert json.loads((tmp_path / MANIFEST_FILE).read_text()) == manifest
  assert [q.text for q in read_questions(tmp_path / "test.jsonl")] == ["é?"]
  with open(tmp_path / "test.jsonl", "a") as file:
    file.write(json.dumps(record("more")) + "\n")
  with pytest.raises(ValueError, match="2 questions .* instead of 1 with"):
    read_questions(tmp_path / "test.jsonl")


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"{SHARED} is not here")
@pytest.mark.parametrize(
  ("dataset", "train", "test"),
  [
    ("web_questions", ("devtest", "val", "trainmodel"), "test"),
    ("curated_trec", ("large2470_train",), "large2470_test"),
  ],
)
def test_public_files_give_the_published_counts(dataset, train, test):
  folder = SHARED / dataset.replace("_", "")
  records = [r for name in train for r in read_raw(folder / f"{name}.jsonl")]
  splits = make_splits(records, read_raw(folder / f"{test}.jsonl"), dataset=dataset)
  expected = {"web_questions": [3417, 361, 2032], "curated_trec": [1353, 133, 694]}[dataset]
  assert [len(part) for part in splits.values()] == expected
  assert len({r["id"] for part in splits.values() for r in part}) == sum(expected)
