"""Each experiment as it is resolved, against a golden text, and the shapes of its models.

Golden texts are renewed by `RENEW_GOLDEN=1 python -m pytest tests/gin`; read their difference.
"""

import contextlib
import dataclasses
import functools
import inspect
import os
import pathlib

import gin
import jax
import pytest

from realm_jax.jobs.training import sweep
from realm_jax.jobs.training.pretrain import pretrain
from realm_jax.jobs.training.pretrain_ict import pretrain_ict
from realm_jax.main import JOBS
from realm_jax.models.dual_encoder import DualEncoder
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.runs.pretraining import Pretraining
from realm_jax.saved.saved_models import example_tokens
from realm_jax.training.objective import LOSS
from realm_jax.training.optimizer import OptimizerConfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = pathlib.Path(__file__).parent / "golden"
EXPERIMENTS = sorted((ROOT / "gin" / "experiments").glob("*.gin"))
SWEEPS = sorted((ROOT / "gin" / "experiments").glob("*.sweep"))


@pytest.fixture(autouse=True)
def clean_gin(monkeypatch):
  monkeypatch.chdir(ROOT)
  gin.clear_config()
  yield
  gin.clear_config()


def check_golden(name, text):
  golden = GOLDEN / f"{name}.txt"
  if os.environ.get("RENEW_GOLDEN"):
    golden.parent.mkdir(exist_ok=True)
    golden.write_text(text, "utf-8")
  assert text == golden.read_text("utf-8"), f"{name} is resolved otherwise; see {__file__}"


def pretrainings():
  """Returns every pre-training that the parsed files configure, by where it is configured."""
  found = {}
  with contextlib.suppress(ValueError):  # of files that mention no pre-training
    if gin.get_bindings(pretrain, resolve_references=False):
      found["pretrain"] = gin.get_configurable(pretrain)
  for selector in {selector for _, selector in gin.config._CONFIG}:
    if selector.startswith("realm_jax.jobs."):
      for keyword, value in gin.get_bindings(selector).items():
        if inspect.isfunction(value) and inspect.unwrap(value) is inspect.unwrap(pretrain):
          found[f"{selector}.{keyword}"] = value
  return found


def of_one_layer(config):
  return dataclasses.replace(config, num_layers=1)


@functools.cache
def parameters_have_shapes(pretraining):
  return bool(jax.tree.leaves(jax.eval_shape(pretraining.init_params, jax.random.key(0))))


@functools.cache
def the_loss_is_a_number(pretraining):
  key = jax.random.key(0)
  params = jax.eval_shape(pretraining.init_params, key)
  batch = pretraining.abstract_batch()
  figures = jax.eval_shape(pretraining.objective.figures, params, batch, key)
  return LOSS in figures and all(leaf.shape == () for leaf in jax.tree.leaves(figures))


def check_pretraining(job):
  planned: list[Pretraining] = []
  job(workdir="", corpus="", passages="", index="", instead=planned.append)
  # What no shape depends on is made equal, so that equal models are made once.
  settings = {"optimizer": OptimizerConfig(), "batch_size": 2, "accumulate_steps": 1, "seed": 0}
  every = {"checkpoint_every": 1, "keep_checkpoints": 1}
  pretraining = dataclasses.replace(planned[0], **settings, **every)
  retriever, reader = pretraining.dual_encoder, pretraining.knowledge_augmented_encoder
  # The layers are alike: one is enough to see that a batch goes through.
  shallow = dataclasses.replace(
    pretraining,
    dual_encoder=dataclasses.replace(retriever, bert=of_one_layer(retriever.bert)),
    knowledge_augmented_encoder=of_one_layer(reader),
  )
  assert the_loss_is_a_number(shallow)
  model = dataclasses.replace(shallow, dual_encoder=retriever, knowledge_augmented_encoder=reader)
  same = {"retrieval": RetrievalConfig(), "query_length": 8, "max_masks": 1, "marginalize": "span"}
  assert parameters_have_shapes(dataclasses.replace(model, **same))


def check_ict(settings):
  config = settings["dual_encoder"]
  model = DualEncoder(dataclasses.replace(config, bert=of_one_layer(config.bert)))
  query, passage = (
    example_tokens(2, settings.get(f"{part}_length", default))
    for part, default in (("query", 64), ("passage", 288))
  )
  inputs = {"deterministic": True, "method": "encode_pairs"}
  embeddings = jax.eval_shape(
    lambda key: model.init_with_output(key, query, passage, **inputs)[0], jax.random.key(0)
  )
  assert {e.shape for e in embeddings} == {(2, config.projection_size)}


def check_shapes():
  """Makes the parameters of every model, and what comes of a batch, as shapes."""
  trainings = pretrainings()
  for job in trainings.values():
    check_pretraining(job)
  ict = gin.get_bindings(pretrain_ict)
  if "dual_encoder" in ict:
    check_ict(ict)
  return len(trainings)


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_an_experiment_is_what_it_was_and_its_models_have_shapes(file):
  gin.parse_config_file(str(file.relative_to(ROOT)))
  gin.finalize()
  check_golden(file.stem, gin.config_str(max_line_length=100))
  # Fine-tunings and taggers take their models from checkpoints.
  assert check_shapes() > 0 or file.stem.startswith(("finetune", "tagger"))


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_a_sweep_is_what_it_was_and_its_models_have_shapes(file):
  plan = sweep.read_sweep(str(file))
  assert plan.job in JOBS
  lines = [f"{plan.job} {plan.gin_file}"]
  shown = set()
  for unit in plan.units:
    lines.append(unit.name)
    lines += [f"  {name} = {value}" for name, value in unit.bindings.items()]
    if unit.row in shown:
      continue
    shown.add(unit.row)
    gin.clear_config()
    gin.parse_config_file(plan.gin_file)
    gin.parse_config([f"{name} = {value}" for name, value in unit.bindings.items()])
    gin.finalize()
    assert check_shapes() > 0
  check_golden(f"{file.stem}.sweep", "\n".join(lines) + "\n")


@pytest.mark.parametrize("file", [*EXPERIMENTS, *SWEEPS], ids=lambda file: file.name)
def test_the_head_says_command_hardware_time_and_what_to_expect(file):
  head = file.read_text("utf-8").partition("\n\n")[0].partition("\nfrom __gin__")[0]
  for word in ("realm ", file.name, "Hardware", "Time", "Expect"):
    assert word.lower() in head.lower(), f"{file.name} says nothing of {word}"


def test_rows_of_the_ablation_that_share_a_pretraining_configure_it_alike():
  plan = sweep.read_sweep(str(ROOT / "gin" / "experiments" / "ablation.sweep"))
  for unit in plan.units:
    if "ablate.ablate.pretraining" in unit.bindings:
      others = set(unit.bindings) - {"SEED"}
      assert all(name.startswith("ablate.ablate.") for name in others), unit.name
