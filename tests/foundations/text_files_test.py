"""JSON that others wrote, wherever the package reads it."""

import pathlib

import pytest

from realm_jax.data import prepared_examples, question_sets, questions
from realm_jax.evaluation import open_questions, run_comparison
from realm_jax.foundations import text_files
from realm_jax.text import wordpieces

WRONG = {
  "twice": ('{"id": 1, "id": 2}', "has 'id' twice"),
  "twice inside": ('{"a": [{"id": 1, "b": {}, "id": 1}]}', "has 'id' twice"),
  "deep": ("[" * 100_000, "nested too deep"),
  "deep objects": ('{"a":' * 100_000, "nested too deep"),
  "digits": (f'{{"id": {"9" * 5000}}}', "more than 4,300 digits"),
  "cut": ('{"id": ', "line 1"),
  "not UTF-8": ('{"id": "\udcff"}', "UTF-8|utf-8"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_json_is_said(name):
  content, message = WRONG[name]
  with pytest.raises(ValueError, match=message):
    text_files.parse_json(content.encode(errors="surrogateescape"))


READERS = {
  "folder.json": lambda path: prepared_examples.read_manifest(str(path.parent)),
  "tokenizer_config.json": lambda path: wordpieces.load(str(path.parent)),
  "questions.jsonl": questions.read_questions,
  "queries.jsonl": lambda path: questions.read_queries(path, {}),
  "set.jsonl": question_sets.read_raw,
  "set.json": question_sets.read_raw,
  "predictions.jsonl": lambda path: run_comparison.compare(str(path.parent), str(path.parent)),
  "written.jsonl": lambda path: open_questions.read_predictions(path, []),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", READERS)
def test_a_line_names_the_file(tmp_path, name, wrong):
  content, _ = WRONG[wrong]
  (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
  path = pathlib.Path(tmp_path, name)
  path.write_bytes(content.encode(errors="surrogateescape"))
  with pytest.raises(ValueError, match=f"{tmp_path}.*{name}"):
    READERS[name](path)
