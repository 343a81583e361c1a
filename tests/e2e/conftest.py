"""A world of a few hundred facts, a model of a few rows, and the ways to train it."""

import copy
import dataclasses
import fcntl
import functools
import json
import os
import pathlib
import shutil

import numpy as np
import pytest

from realm_jax.index.builder_config import BuilderConfig
from realm_jax.index.vectors.searcher import SearcherConfig
from realm_jax.jobs.preparation.prepare_examples import prepare_examples
from realm_jax.jobs.training.build_index import build_index
from realm_jax.jobs.training.finetune import finetune
from realm_jax.jobs.training.pretrain import pretrain
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.retrieval.question_retriever import BeamConfig
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.training.recipes.examples import (
  ExampleSettings,
  MaskedQueryData,
  QuestionData,
  ReadingOrder,
)
from realm_jax.training.recipes.finetuning import Finetuning, StartConfig
from realm_jax.training.recipes.pretraining import ModelConfig, Pretraining
from realm_jax.training.run.metric_writers import METRICS_FILE
from realm_jax.training.run.optimizer import OptimizerConfig
from realm_jax.training.run.training_config import RunConfig
from tests.configurations import changed, names, tiny_bert
from tests.worlds import make_corpora

TINY = pathlib.Path(__file__).parents[2] / "gin" / "jobs" / "tiny.gin"
BERT = tiny_bert(vocab_size=1024, hidden_size=16, mlp_size=32, max_length=48)
PRETRAINING = Pretraining(
  run=RunConfig(num_steps=100, log_every=1, checkpoint_every=500),
  # A run of any length begins alike.
  optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=0, schedule="constant"),
  data=MaskedQueryData(batch_size=8, query_length=32, max_masks=3),
  model=ModelConfig(
    dual_encoder=DualEncoderConfig(bert=BERT, projection_size=8), knowledge_augmented_encoder=BERT
  ),
  retrieval=RetrievalConfig(num_passages=3, passage_length=32, joint_length=48),
  generation=0,
)
FINETUNING = Finetuning(
  run=RunConfig(num_steps=2, log_every=1, checkpoint_every=100),
  optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=1, schedule="constant"),
  data=QuestionData(batch_size=8, query_length=32),
  model=StartConfig(max_span_width=4, span_hidden_size=8),
  beam=BeamConfig(beam_size=60, num_read=8, joint_length=48),
)
# What no program sees of a training, and of its run; any other setting, a new one as well, makes
# another program.
UNSEEN = (
  *("data", "beam", "refresh", "generation", "spread_index"),
  *("eval_every", "eval_steps", "dev"),
)
UNSEEN_OF_RUN = (
  *("seed", "log_every", "checkpoint_every", "keep_checkpoints", "allow_changes"),
  *("on_collapse", "resume_from", "profile_steps"),
)
# On a machine without TensorFlow, parses the experiments and runs command lines as processes do.
WITHOUT_TENSORFLOW = """
import glob, importlib.abc, json, sys

class Missing(importlib.abc.MetaPathFinder):
  def find_spec(self, name, path, target=None):
    if name.split(".")[0] in ("tensorflow", "tensorflow_text", "seqio", "tokenizers"):
      raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import gin
from realm_jax import main
from realm_jax.jobs.training import finetune, launch_local, pretrain, train_retriever
for experiment in glob.glob("gin/experiments/*.gin"):
  gin.parse_config_file(experiment)
  gin.clear_config()
sys.exit(main.main(json.loads(sys.argv[1])))
"""
# Losses are compared, on processors with matrix units for bfloat16 as well.
AS_HERE = f"""
bert.BertConfig.dtype = "{BERT.dtype}"
bert.BertConfig.dropout_rate = {BERT.dropout_rate}
"""


@pytest.fixture(scope="session", autouse=True)
def traced_once():
  """Runs with one program share it: most differ in settings that no program sees."""
  makers = {kind: kind.program for kind in (Pretraining, Finetuning)}

  @functools.cache
  def shared(config, *arguments, **lengths):
    return makers[type(config)](config, *arguments, **lengths)

  def program(config, *arguments, **lengths):
    program = copy.copy(shared(_as_programs_see(config), *arguments, **lengths))
    program.seed = np.int32(config.run.seed)
    return program

  with pytest.MonkeyPatch.context() as patch:
    for kind in makers:
      patch.setattr(kind, "program", program)
    yield


@pytest.fixture(scope="session")
def world(tmp_path_factory):
  """A directory with almanac, vocabulary, corpora, a checkpoint of step 0 and its index.

  The first of several workers builds it, and each has a copy.
  """
  base = tmp_path_factory.getbasetemp()
  built = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "built_world"
  with open(f"{built}.lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not built.exists():
      unfinished = tmp_path_factory.mktemp("unfinished")
      _build_world(unfinished)
      unfinished.rename(built)
  return shutil.copytree(built, base / "world")


def _build_world(root):
  make_corpora(root)
  prepare_examples(
    task="masked_queries",
    corpus=str(root / "training"),
    output=str(root / "examples"),
    settings=ExampleSettings(query_length=32, max_masks=3),
    reading=ReadingOrder(num_examples=100),
  )
  (root / TINY.name).write_text(TINY.read_text() + AS_HERE)
  _start(root, "first", num_steps=0)
  builder = BuilderConfig(searcher=SearcherConfig(kind="scann"))
  _build(root, "first", root / "index", builder=builder)


def _build(root, name, index, *, passages="passages", **settings):
  build_index(
    checkpoints=str(root / name / "checkpoints"),
    passages=str(root / passages),
    index=str(index),
    **settings,
  )


@pytest.fixture(scope="session")
def build(world):
  """`build(name, index, ...)` builds an index with the checkpoints of a run."""
  return functools.partial(_build, world)


@pytest.fixture(scope="session")
def start(world):
  """`start(name, **keywords)` trains in `world / name`.

  On generation 0 and prepared examples, which are there at once, unless told otherwise.
  """

  def start_in_world(name, **keywords):
    _start(world, name, **keywords)

  return start_in_world


@pytest.fixture(scope="session")
def tune(world):
  """`tune(name, **keywords)` fine-tunes in `world / name`, from the checkpoint of step 0."""

  def run(name, **keywords):
    places = {
      "workdir": str(world / name),
      "questions": str(world / "almanac" / "training_questions.jsonl"),
      "passages": str(world / "passages"),
      "index": str(world / "index"),
      "start": [str(world / "first" / "checkpoints")],
    }
    settings = {key: keywords.pop(key) for key in names(FINETUNING) & keywords.keys()}
    finetune(**{**places, **keywords}, finetuning=changed(FINETUNING, **settings))

  return run


@pytest.fixture(scope="session")
def tuned_whole(tune, world):
  """Checkpoints of a fine-tuning of six steps that nothing stopped, in a directory of this name."""
  tune(
    "tuned_whole",
    num_steps=6,
    dev_questions=str(world / "almanac" / "heldout_questions.jsonl"),
    max_dev_questions=10,
    eval_every=4,
    best_metric="recall@5",
  )
  return str(world / "tuned_whole" / "checkpoints")


@pytest.fixture(scope="session")
def arguments(world):
  """`arguments(name, **keywords)` is the command line of the same training."""

  def make(name, **keywords):
    keywords = {**_places(world, name), "generation": 0, **keywords}
    return [
      "pretrain",
      f"--gin_file={world / 'tiny.gin'}",
      *(f"--{keyword}={value}" for keyword, value in keywords.items()),
    ]

  return make


@pytest.fixture(scope="session")
def rows(world):
  """`rows(name)` reads what a run wrote."""

  def read(name):
    with open(world / name / METRICS_FILE, encoding="utf-8") as file:
      return [json.loads(line) for line in file]

  return read


@pytest.fixture(scope="session")
def losses(rows):
  """`losses(name)` is the training loss by step; a step that was written twice is refused."""

  def read(name):
    found = {row["step"]: row["loss/total"] for row in rows(name)}
    assert list(found) == [row["step"] for row in rows(name)] == sorted(found)
    return found

  return read


def _as_programs_see(config):
  """Returns a configuration without what no program sees."""
  basis = {Pretraining: PRETRAINING, Finetuning: FINETUNING}[type(config)]
  rate = config.optimizer.learning_rate
  of_run = {name: getattr(basis.run, name) for name in UNSEEN_OF_RUN}
  if config.optimizer == dataclasses.replace(basis.optimizer, learning_rate=rate):
    # At a constant rate the number of steps does not count.
    of_run["num_steps"] = basis.run.num_steps
  unseen = {name: getattr(basis, name) for name in UNSEEN if hasattr(basis, name)}
  if isinstance(config, Pretraining) and config.dual_encoder_learns:
    # A step embeds what the posterior proposes like what the index finds.
    unseen["retrieval"] = config.retrieval.answering
  return dataclasses.replace(config, run=dataclasses.replace(config.run, **of_run), **unseen)


def _places(root, name):
  return {
    "workdir": os.fspath(root / name),
    "corpus": os.fspath(root / "examples"),
    "passages": os.fspath(root / "passages"),
    "index": os.fspath(root / "index"),
  }


def _start(root, name, **keywords):
  settings = {key: keywords.pop(key) for key in names(PRETRAINING) & keywords.keys()}
  pretraining = changed(PRETRAINING, **settings)
  pretrain(**{**_places(root, name), **keywords}, pretraining=pretraining)
