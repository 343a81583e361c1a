import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from realm_jax import tokenization
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import tagged_examples
from realm_jax.jobs.prepare_corpus import prepare_corpus
from realm_jax.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

PIECES = "oslo is the capital of norway . zürich zurich cafe opens in 1969 and".split()
DOCUMENTS = (
  {"id": "1", "title": "Norway", "text": "Oslo is the capital of Norway. The café opens in 1969."},
  {"id": "2", "title": "", "text": "It is in Zürich and in Oslo.", "spans": [[9, 16]]},
  {"id": "3", "title": "Norway", "text": "Oslo is the capital of Norway."},
)


def write_documents(path, documents=DOCUMENTS):
  path.write_text("\n".join(json.dumps(document) for document in documents))


def read_examples(directory):
  files = tagged_examples.files(directory)
  dataset = tf.data.TFRecordDataset(files, compression_type="GZIP")
  return [
    tf.io.parse_single_example(record, tagged_examples.FEATURE_DESCRIPTION) for record in dataset
  ]


def cut(example, kind):
  text = example["text"].numpy()
  borders = (example[f"{kind}_byte_{end}"].numpy() for end in ("start", "limit"))
  return [text[start:limit].decode() for start, limit in zip(*borders, strict=True)]


@pytest.fixture
def inputs(tmp_path):
  write_documents(tmp_path / "documents.jsonl")
  WordPieceTokenizer([*SPECIAL_TOKENS, *PIECES]).save(tmp_path / "vocabulary")
  return {
    "input": str(tmp_path / "documents.jsonl"),
    "vocabulary": str(tmp_path / "vocabulary"),
    "max_passage_length": 20,
    "max_sentences": 1,
    "num_shards": 2,
  }


def test_store_and_examples_hold_the_same_passages(tmp_path, inputs):
  metadata = prepare_corpus(output=str(tmp_path / "out"), **inputs)
  store = PassageStore(tmp_path / "out")
  assert store.metadata == metadata
  assert [store.text(row) for row in range(len(store))] == [
    "Oslo is the capital of Norway.",
    "The café opens in 1969.",
    "It is in Zürich and in Oslo.",
  ]
  assert metadata.counts["duplicate_passages"] == 1
  examples = {int(example["uid"]): example for example in read_examples(tmp_path / "out")}
  assert sorted(examples) == sorted(store.uids.tolist())
  for row, uid in enumerate(store.uids.tolist()):
    assert examples[uid]["text"].numpy().decode() == store.text(row)
    assert examples[uid]["title"].numpy().decode() == store.title(row)
    assert cut(examples[uid], "sentence") == [store.text(row)]
  spans = [cut(examples[uid], "span") for uid in store.uids.tolist()]
  assert spans == [["Oslo", "Norway"], ["1969"], ["Zürich"]]


def test_the_vocabulary_goes_with_the_store(tmp_path, inputs):
  metadata = prepare_corpus(output=str(tmp_path / "out"), **inputs)
  tokenizer = tokenization.load(tmp_path / "out" / "vocabulary")
  assert tokenizer.digest == metadata.vocabulary_digest
  ids, lengths = PassageStore(tmp_path / "out").body_ids([0], length=10)
  np.testing.assert_array_equal(
    ids[0, : lengths[0]], tokenizer.encode("Oslo is the capital of Norway.")
  )


def contents(directory):
  files = [path for path in pathlib.Path(directory).rglob("*") if path.is_file()]
  return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_two_runs_write_the_same_bytes(tmp_path, inputs):
  for name in ("a", "b"):
    prepare_corpus(output=str(tmp_path / name), **inputs)
  first = contents(tmp_path / "a")
  assert first == contents(tmp_path / "b")
  assert {"metadata.json", "vocabulary/vocab.txt", "examples-00001-of-00002.tfrecord.gz"} <= set(
    first
  )


@pytest.mark.parametrize("documents", [[], [{"text": " "}], [{"title": "only a title"}]])
def test_a_corpus_without_text_leaves_nothing_behind(tmp_path, inputs, documents):
  write_documents(tmp_path / "documents.jsonl", documents)
  before = sorted(os.listdir(tmp_path))
  with pytest.raises(ValueError, match=r"no text in '.*documents\.jsonl'"):
    prepare_corpus(output=str(tmp_path / "out"), **inputs)
  assert sorted(os.listdir(tmp_path)) == before


def test_an_old_output_stays_when_a_new_run_fails(tmp_path, inputs):
  prepare_corpus(output=str(tmp_path / "out"), **inputs)
  before = contents(tmp_path / "out")
  write_documents(tmp_path / "documents.jsonl", [])
  with pytest.raises(ValueError, match="no text"):
    prepare_corpus(output=str(tmp_path / "out"), **inputs)
  with pytest.raises(FileNotFoundError, match="no file matches"):
    prepare_corpus(output=str(tmp_path / "out"), **{**inputs, "input": str(tmp_path / "none")})
  assert contents(tmp_path / "out") == before


def test_a_new_output_replaces_the_old_one_whole(tmp_path, inputs):
  prepare_corpus(output=str(tmp_path / "out"), **inputs)
  write_documents(tmp_path / "documents.jsonl", DOCUMENTS[:1])
  metadata = prepare_corpus(output=str(tmp_path / "out"), **{**inputs, "num_shards": 1})
  assert metadata.num_passages == 2
  assert len(tagged_examples.files(tmp_path / "out")) == 1
  assert len(read_examples(tmp_path / "out")) == 2


@pytest.mark.parametrize(
  ("setting", "message"),
  [
    ({"num_shards": 0}, "num_shards=0; write at least one"),
    ({"max_passage_length": 3}, "max_passage_length=3 leaves no room"),
    ({"max_sentences": 0}, "max_sentences=0; a passage needs one"),
  ],
)
def test_settings_that_cannot_work_are_refused(tmp_path, inputs, setting, message):
  with pytest.raises(ValueError, match=message):
    prepare_corpus(output=str(tmp_path / "out"), **{**inputs, **setting})
  assert not (tmp_path / "out").exists()
