import json
import os
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

import realm_jax.corpus
from realm_jax.corpus import input_files, parts, tagged_examples
from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.engines import EngineConfig
from realm_jax.corpus.local_pipeline import PartLog
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.corpus.vocabulary import VocabularyConfig
from realm_jax.foundations import atomic_files
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus
from realm_jax.text import tokenization
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

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
    tf.io.parse_single_example(record, tagged_examples.feature_description()) for record in dataset
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
    "chunking": ChunkingConfig(max_passage_length=20, max_sentences=1),
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


def test_several_inputs_make_one_corpus(tmp_path, many):
  whole = prepare_corpus(output=str(tmp_path / "whole"), **many)
  many["input"] = f"{tmp_path / 'a.jsonl'},{tmp_path / 'b.*'}"
  assert prepare_corpus(output=str(tmp_path / "parts"), **many) == whole
  assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def contents(directory):
  files = [path for path in pathlib.Path(directory).rglob("*") if path.is_file()]
  return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def many_documents(path, count=600):
  """More documents than one part holds, with duplicates near and far and some bad records."""
  towns = ("Oslo", "Zürich", "Norway")
  lines = []
  for i in range(count):
    text = f"{towns[i % 3]} is the capital of {i % 250}. The café opens in {1900 + i % 7}."
    lines.append(json.dumps({"id": i, "title": towns[i % 2], "text": text}))
    if i % 200 == 7:
      lines += ['{"text": ', '{"title": "List of cafés", "text": "Oslo."}', '{"text": ""}']
  path.write_text("\n".join(lines))


@pytest.fixture
def many(tmp_path, inputs):
  many_documents(tmp_path / "a.jsonl")
  many_documents(tmp_path / "b.jsonl", 300)
  return {**inputs, "input": str(tmp_path / "?.jsonl")}


def test_any_number_of_workers_writes_the_same_bytes(tmp_path, many):
  one = prepare_corpus(output=str(tmp_path / "one"), **many)
  two = prepare_corpus(output=str(tmp_path / "two"), engine=EngineConfig(num_workers=2), **many)
  assert one == two
  assert one.counts["duplicate_passages"] > 100
  assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_beam_is_missed_before_anything_is_read(monkeypatch):
  monkeypatch.setitem(sys.modules, "apache_beam", None)
  monkeypatch.delitem(sys.modules, "realm_jax.corpus.beam_pipeline", raising=False)
  monkeypatch.delattr(realm_jax.corpus, "beam_pipeline", raising=False)
  with pytest.raises(ValueError, match="install realm_jax with the extra `beam`"):
    EngineConfig(engine="beam")


@pytest.mark.interop
def test_workers_of_beam_read_a_relative_path_in_any_directory(tmp_path, inputs, monkeypatch):
  pytest.importorskip("apache_beam", reason="the extra `beam` is not installed")
  monkeypatch.chdir(pathlib.Path(inputs["input"]).parent)
  files = input_files.find_files([os.path.basename(inputs["input"])])[0]
  make_part = parts.PartMaker(
    tokenizer=tokenization.load(inputs["vocabulary"]),
    tag=lambda text, language: (),
    chunking=ChunkingConfig(),
    drop_list_pages=True,
  )
  made = EngineConfig(engine="beam").make_parts(
    files, make_part=make_part, log=PartLog(str(tmp_path / "out"))
  )
  monkeypatch.chdir("/")
  assert sum(len(part.rows) for part in made) > 0


@pytest.mark.interop
@pytest.mark.parametrize("directory", [None, "parts"])
def test_beam_writes_the_same_bytes(tmp_path, many, directory):
  pytest.importorskip("apache_beam", reason="the extra `beam` is not installed")
  one = prepare_corpus(output=str(tmp_path / "one"), **many)
  place = None if directory is None else str(tmp_path / directory)
  if place is not None:
    os.mkdir(place)
  engine = EngineConfig(engine="beam", beam_parts=place)
  beam = prepare_corpus(output=str(tmp_path / "beam"), engine=engine, **many)
  assert one == beam
  assert contents(tmp_path / "one") == contents(tmp_path / "beam")
  if directory is not None:
    assert os.listdir(tmp_path / directory) == []


@pytest.mark.parametrize(
  "damage", (b"", b"\0\0", bytes(20), b"\xff" * 20), ids=("whole", "cut", "zeros", "garbage")
)
def test_an_interrupted_run_goes_on_after_its_last_part(tmp_path, many, monkeypatch, damage):
  whole, resumed = tmp_path / "whole", tmp_path / "resumed"
  prepare_corpus(output=str(whole), **many)
  make, made = parts.PartMaker.__call__, []

  def interrupted(maker, records):
    if len(made) == 1:
      raise KeyboardInterrupt
    made.append(len(records))
    return make(maker, records)

  with monkeypatch.context() as patch:
    patch.setattr(parts.PartMaker, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
      prepare_corpus(output=str(resumed), **many)
  log = tmp_path / ".resumed.parts"
  log.write_bytes(log.read_bytes() + damage)
  monkeypatch.setattr(parts.PartMaker, "__call__", lambda *_: made.append(1) or make(*_))
  prepare_corpus(output=str(resumed), **many)
  assert contents(resumed) == contents(whole)
  assert made == [512, 1] and not log.exists()


def test_parts_of_another_input_are_not_used(tmp_path, many, monkeypatch):
  (tmp_path / ".out.parts").write_bytes(b"another digest\nand parts")
  prepare_corpus(output=str(tmp_path / "out"), **many)
  prepare_corpus(output=str(tmp_path / "again"), **many)
  assert contents(tmp_path / "out") == contents(tmp_path / "again")


def test_two_jobs_do_not_write_the_same_output(tmp_path, many):
  log = tmp_path / ".out.parts"
  log.touch()
  with atomic_files.locked(log), pytest.raises(ValueError, match="another process is writing"):
    prepare_corpus(output=str(tmp_path / "out"), **many)
  assert log.exists()


def test_bad_records_are_named_and_not_fatal(tmp_path, many, capsys):
  metadata = prepare_corpus(output=str(tmp_path / "out"), **many)
  assert metadata.counts["broken_records"] == 5
  assert metadata.counts["records_without_text"] == 5
  assert metadata.counts["list_pages_dropped"] == 5
  printed = capsys.readouterr().out
  assert f"broken records: {tmp_path}/a.jsonl:9 ('{{\"text\":' is not JSON" in printed
  assert f", {tmp_path}/a.jsonl:212" in printed
  assert f"records without text: {tmp_path}/a.jsonl:11" in printed


def test_a_title_without_text_is_a_passage(tmp_path, inputs):
  write_documents(tmp_path / "documents.jsonl", [{"id": "7", "title": "Oslo in Norway."}])
  metadata = prepare_corpus(output=str(tmp_path / "out"), **inputs)
  store = PassageStore(tmp_path / "out")
  assert (len(store), store.document(0), store.title(0)) == (1, "7", "")
  assert store.text(0) == "Oslo in Norway." and "records_without_text" not in metadata.counts
  (example,) = read_examples(tmp_path / "out")
  assert cut(example, "sentence") == ["Oslo in Norway."]


@pytest.mark.parametrize("engine", ["processes", pytest.param("beam", marks=pytest.mark.interop)])
def test_documents_with_equal_ids_are_named_and_counted(tmp_path, many, capsys, engine):
  if engine == "beam":
    pytest.importorskip("apache_beam", reason="the extra `beam` is not installed")
  prepare_corpus(output=str(tmp_path / "out"), engine=EngineConfig(engine=engine), **many)
  (line,) = [row for row in capsys.readouterr().out.splitlines() if "id of an earlier" in row]
  assert ": '0', '1', '2', " in line and line.endswith("and 280 more")


def test_an_old_output_stays_when_a_new_run_fails(tmp_path, inputs):
  prepare_corpus(output=str(tmp_path / "out"), **inputs)
  before = contents(tmp_path / "out")
  write_documents(tmp_path / "documents.jsonl", [])
  with pytest.raises(ValueError, match="no text"):
    prepare_corpus(output=str(tmp_path / "out"), **inputs)
  with pytest.raises(FileNotFoundError, match="no file matches"):
    prepare_corpus(output=str(tmp_path / "out"), **{**inputs, "input": str(tmp_path / "none")})
  assert contents(tmp_path / "out") == before


GERMAN = "Die Hauptstadt von Norwegen ist Oslo. Das Café öffnet im Jahre 1969, bzw. am 3. Oktober."
CHINESE = "奥斯陆是挪威的首都。咖啡馆于1969年开业。"


@pytest.mark.parametrize(
  ("language", "languages"),
  [(("auto",), ("de", "en", "zh")), (("zh-Hant", "de"), ("de", "zh")), (("und",), ("und",))],
)
def test_the_store_knows_its_languages(tmp_path, inputs, language, languages):
  german = f"{GERMAN} Moose wachsen im Schatten der Bäume, und ihre Sporen trägt der Wind davon."
  texts = [DOCUMENTS[0]["text"] * 3, german, CHINESE]
  documents = [{"id": str(i), "text": text} for i, text in enumerate(texts)]
  write_documents(tmp_path / "documents.jsonl", documents)
  prepare_corpus(output=str(tmp_path / "out"), language=language, **inputs)
  assert PassageStore(tmp_path / "out").metadata.languages == languages


def test_sentences_end_as_the_language_of_the_document_has_it(tmp_path, inputs):
  write_documents(tmp_path / "documents.jsonl", [{"id": "1", "text": GERMAN}])
  counts = {}
  for language in ("de", "en"):
    prepare_corpus(output=str(tmp_path / "out"), language=(language,), **inputs)
    examples = read_examples(tmp_path / "out")
    counts[language] = sum(len(cut(example, "sentence")) for example in examples)
  assert counts["de"] == 2 < counts["en"]


@pytest.mark.parametrize("unknown", [0.0, 0.1, 0.5])
def test_a_vocabulary_must_know_the_text(tmp_path, inputs, unknown, caplog):
  random = np.random.default_rng(0)
  words = random.choice([*PIECES[:5], "北"], 1500, p=[*[(1 - unknown) / 5] * 5, unknown])
  write_documents(tmp_path / "documents.jsonl", [{"text": " ".join(words)}])
  prepare = {**inputs, "output": str(tmp_path / "out"), "language": ("und",)}
  if unknown == 0.5:
    with pytest.raises(ValueError, match="does not know [45].*learn one with another --vocabulary"):
      prepare_corpus(**prepare)
    assert not (tmp_path / "out").exists()
  else:
    prepare_corpus(**prepare)
    assert ("the vocabulary does not know" in caplog.text) == (unknown == 0.1)


def test_a_vocabulary_is_learned_from_one_corpus_and_cuts_others(tmp_path, inputs, capsys):
  new = str(tmp_path / "learned")
  learning = VocabularyConfig(vocab_size=80)
  prepare_corpus(**{**inputs, "vocabulary": new}, output=str(tmp_path / "first"), learning=learning)
  written = pathlib.Path(new, "vocab.txt").read_bytes()
  assert len(written.splitlines()) <= 80 and " wordpieces, digest " in capsys.readouterr().out
  write_documents(tmp_path / "other.jsonl", [{"text": "Zinc is a metal."}])
  other = {**inputs, "input": str(tmp_path / "other.jsonl"), "vocabulary": new}
  prepare_corpus(**other, output=str(tmp_path / "second"), learning=learning)
  assert pathlib.Path(new, "vocab.txt").read_bytes() == written
