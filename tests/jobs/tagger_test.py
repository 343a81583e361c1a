"""From CoNLL files to a tagger and to a tagged corpus, with a model of a few rows."""

import dataclasses
import functools
import json
import os

import flax.linen as nn
import jax
import numpy as np
import pytest

from realm_jax.data import tagged_examples
from realm_jax.data.tagged_examples import TaggedPassage
from realm_jax.devices.partitioning import make_mesh
from realm_jax.jobs.preparation import tag_salient_spans
from realm_jax.jobs.preparation.train_tagger import train_tagger
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoder, DualEncoderConfig
from realm_jax.runs import taggers
from realm_jax.runs.training_config import RunConfig
from realm_jax.saved import saved_models
from realm_jax.text import tokenization
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from realm_jax.training import checkpoints
from realm_jax.training.optimizer import OptimizerConfig
from tests.configurations import changed, names

pytest.importorskip("seqeval")

NAMES = {"PER": ("åse öberg", "jose", "李 明"), "LOC": ("oslo", "zürich", "東 京", "😀")}
OTHERS = ("met", "in", "and", ",", ".", "wrote", "a", "book", "12", "may", "1881")
BERT = BertConfig(
  dtype="float32",
  vocab_size=64,
  hidden_size=32,
  num_layers=1,
  num_heads=2,
  mlp_size=32,
  max_length=32,
)
TAGGING = taggers.TaggerTraining(
  run=RunConfig(num_steps=40, log_every=20, checkpoint_every=500, keep_checkpoints=2),
  # A run of any length begins alike.
  optimizer=OptimizerConfig(name="adamw", learning_rate=1e-2, warmup_steps=0, schedule="constant"),
  dropout_rate=0.0,
  batch_size=16,
  buckets=(8, 16),
)


def write_conll(path, *, seed, count=60):
  random = np.random.default_rng(seed)
  lines = []
  for _ in range(count):
    for _ in range(random.integers(2, 5)):
      label = random.choice(["O", *NAMES])
      words = random.choice(NAMES.get(label, OTHERS)).split()
      tags = ["O" if label == "O" else f"{'I' if i else 'B'}-{label}" for i in range(len(words))]
      lines += [f"{word}\t{tag}" for word, tag in zip(words, tags, strict=True)]
    lines.append("")
  path.write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
  root = tmp_path_factory.mktemp("world")
  pieces = "ase oberg jose 李 明 oslo zurich 東 京 😀".split()
  WordPieceTokenizer([*SPECIAL_TOKENS, *pieces, *OTHERS]).save(root / "vocabulary")
  write_conll(root / "train.conll", seed=0)
  write_conll(root / "test.conll", seed=1)
  return root


def train(root, name, **settings):
  changes = {key: settings.pop(key) for key in names(TAGGING) & settings.keys()}
  places = {key: str(root / f"{key}.conll") for key in ("train", "test")}
  places["bert"] = dataclasses.replace(BERT, dropout_rate=0.0, attention_dropout_rate=0.0)
  return train_tagger(
    workdir=str(root / name),
    vocabulary=str(root / "vocabulary"),
    tagging=changed(TAGGING, **changes),
    **{**places, **settings},
  )


@pytest.fixture(scope="module")
def tagger(world):
  figures = train(world, "tagger", dev=str(world / "test.conll"))
  return str(world / "tagger"), figures


def load(workdir, step=None):
  return taggers.load(str(workdir), mesh=make_mesh(), step=step)


def test_a_tagger_learns_its_labels(tagger):
  workdir, figures = tagger
  assert figures["f1"] > 0.95
  assert set(figures["labels"]) == {"LOC", "PER"}
  with open(os.path.join(workdir, "figures.json")) as file:
    assert json.load(file)["f1"] == figures["f1"]
  with open(os.path.join(workdir, "metrics.jsonl")) as file:
    rows = [json.loads(line) for line in file]
  assert rows[-1]["eval/f1"] == figures["f1"]
  assert rows[-1]["loss/total"] < rows[0]["loss/total"]


def test_a_finished_run_is_only_evaluated(world, tagger):
  workdir, figures = tagger
  before = saved_models.params_digest(load(workdir).params)
  assert train(world, "tagger") == figures
  assert saved_models.params_digest(load(workdir).params) == before


def test_a_stopped_run_continues_as_if_it_had_not_been(world):
  short = {"test": None, "num_steps": 4, "checkpoint_every": 2}
  train(world, "whole", **short)
  train(world, "parted", **short | {"num_steps": 2})
  train(world, "parted", **short)
  whole, parted, half = (
    saved_models.params_digest(load(world / name, step=step).params)
    for name, step in (("whole", 4), ("parted", 4), ("whole", 2))
  )
  assert whole == parted != half


def test_the_encoder_begins_with_that_of_a_checkpoint(world):
  encoder = DualEncoderConfig(bert=BERT, projection_size=8)
  init = functools.partial(saved_models.init_dual_encoder, DualEncoder(encoder))
  params = {"dual_encoder": nn.unbox(jax.jit(init)(jax.random.key(7)))}
  description = saved_models.ModelDescription(
    dual_encoder=encoder,
    query_length=8,
    passage_length=8,
    vocabulary_digest=tokenization.load(world / "vocabulary").digest,
    corpus_fingerprint="",
  )
  directory = str(world / "imported")
  with checkpoints.Checkpointer(directory) as checkpointer:
    metadata = {"model": dataclasses.asdict(description)}
    checkpointer.save(0, {"params": params}, input={}, metadata=metadata)
    checkpointer.wait()
  still = OptimizerConfig(name="adamw", learning_rate=0.0)
  settings = {"bert": None, "test": None, "num_steps": 1, "optimizer": still}
  train(world, "warm", warm_start=directory, **settings)
  saved = load(world / "warm")
  assert saved.description.tagger.bert == BERT
  jax.tree.map(
    np.testing.assert_array_equal,
    saved.params["bert"],
    params["dual_encoder"]["tower"]["bert"],
  )


def test_what_does_not_fit_is_refused(world, tagger, tmp_path):
  (tmp_path / "other.conll").write_text("oslo\tB-GPE\n")
  other = str(tmp_path / "other.conll")
  for settings, message in (
    ({"bert": None}, "neither a size nor a warm start"),
    ({"test": other}, r"has labels \['GPE'\] that the training file lacks"),
    ({"buckets": (8, 64)}, "buckets=64 exceeds the 32 positions of bert"),
    ({"dropout_rate": 0.3}, "holds a run with another tagger"),
  ):
    with pytest.raises(ValueError, match=message):
      train(world, "tagger", **settings)
  with pytest.raises(ValueError, match="give at least one, in ascending"):
    train(world, "tagger", buckets=(16, 8))


TEXTS = (
  "Åse Öberg met 李明, in Zu\u0308rich. 😀 and JOSE\u0301 in 1881",
  "a book in 東京 and\u00a0Oslo, 12 May 1881. A book",
  "met",
)
SPANS = (
  ["Åse Öberg", "李明", "Zu\u0308rich", "😀", "JOSE\u0301", "1881"],
  ["東京", "Oslo", "12 May 1881"],
  [],
)


def write_corpus(directory, num_shards=2):
  directory.mkdir()
  writer = tagged_examples.TaggedExampleWriter(directory, num_shards=num_shards)
  for uid, text in enumerate(TEXTS, 1):
    raw = text.encode()
    border = raw.find(b". ") + 1
    sentences = [(0, border), (border + 1, len(raw))] if border else [(0, len(raw))]
    passage = TaggedPassage(title="t", text=text, uid=uid, sentences=sentences, spans=[(0, 1)])
    writer.write(tagged_examples.serialize(passage))
  writer.close()
  return str(directory)


def read_corpus(directory):
  return sorted(
    (p for path in tagged_examples.files(directory) for p in tagged_examples.read_shard(path)),
    key=lambda passage: passage.uid,
  )


def tag(tagger, corpus, output, **settings):
  return tag_salient_spans.tag_salient_spans(
    tagger=tagger[0], corpus=corpus, output=str(output), **settings
  )


def test_spans_are_entities_and_dates_in_bytes_of_the_raw_text(tagger, tmp_path):
  corpus = write_corpus(tmp_path / "corpus")
  counts = tag(tagger, corpus, tmp_path / "tagged")
  assert counts == {"shards": 2, "passages": 3, "entities": 7, "dates": 2, "spans": 9}
  tagged = read_corpus(tmp_path / "tagged")
  found = [[p.text.encode()[a:b].decode() for a, b in p.spans] for p in tagged]
  assert found == list(SPANS)
  untouched = [dataclasses.replace(p, spans=()) for p in tagged]
  assert untouched == [dataclasses.replace(p, spans=()) for p in read_corpus(corpus)]


def test_only_the_labels_asked_for(tagger, tmp_path):
  corpus = write_corpus(tmp_path / "corpus")
  assert tag(tagger, corpus, tmp_path / "tagged", labels=["LOC"])["entities"] == 4
  with pytest.raises(
    ValueError, match=r"does not know labels \['GPE'\]; choose from \['LOC', 'PER'\]"
  ):
    tag(tagger, corpus, tmp_path / "other", labels=["GPE"])


def test_a_stopped_tagging_goes_on_with_the_shards_that_lack(tagger, tmp_path):
  corpus, output = write_corpus(tmp_path / "corpus"), tmp_path / "tagged"
  tag(tagger, corpus, output)
  shards = tagged_examples.files(output)
  contents = [open(path, "rb").read() for path in shards]
  os.remove(shards[1])
  with pytest.raises(ValueError, match="holds 1 of 2 shards"):
    tagged_examples.files(output)
  untouched = os.stat(shards[0]).st_mtime_ns
  assert tag(tagger, corpus, output)["shards"] == 1
  assert [open(path, "rb").read() for path in shards] == contents
  assert os.stat(shards[0]).st_mtime_ns == untouched
  assert tag(tagger, corpus, output) == {}


def test_the_output_says_which_tagger_tagged_it(world, tagger, tmp_path):
  corpus, output = write_corpus(tmp_path / "corpus"), tmp_path / "tagged"
  tag(tagger, corpus, output)
  manifest = json.loads((output / tag_salient_spans.MANIFEST).read_text())
  saved = load(tagger[0])
  assert manifest["parameters_digest"] == saved_models.params_digest(saved.params)
  assert (manifest["tagger"], manifest["step"], manifest["labels"]) == (
    tagger[0],
    40,
    ["LOC", "PER"],
  )
  with pytest.raises(ValueError, match="was tagged with a different labels"):
    tag(tagger, corpus, output, labels=["PER"])
  train(world, "another", num_steps=1, test=None)
  with pytest.raises(ValueError, match="was tagged with a different (step|parameters_digest)"):
    tag([str(world / "another")], corpus, output)


def test_what_is_no_tagger_is_named(world, tagger, tmp_path):
  corpus = write_corpus(tmp_path / "corpus")
  with pytest.raises(FileNotFoundError, match="no checkpoint in"):
    tag([str(tmp_path / "none")], corpus, tmp_path / "tagged")
  with pytest.raises(FileNotFoundError, match="no file matches"):
    tag(tagger, str(tmp_path / "none"), tmp_path / "tagged")


def test_several_processes_are_refused(world, tagger, tmp_path, monkeypatch):
  monkeypatch.setattr(jax, "process_count", lambda: 2)
  for call in (lambda: train(world, "several"), lambda: tag(tagger, "corpus", tmp_path)):
    with pytest.raises(ValueError, match="2 processes have joined; a tagger runs in one"):
      call()
