"""Each experiment as its jobs get it, against a golden text, and the shapes of its models.

Golden texts are renewed by `RENEW_GOLDEN=1 python -m pytest tests/gin`; read their difference.
"""

import dataclasses
import difflib
import functools
import itertools
import os
import pathlib

import gin
import jax
import jax.numpy as jnp
import pytest

from launch import sweep
from realm_jax import main
from realm_jax.command_line import configuration, flags
from realm_jax.devices import datatypes
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.encoder import example_tokens
from realm_jax.objectives.objective import LOSS
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.training.recipes.examples import MaskedQueryData
from realm_jax.training.recipes.finetuning import Finetuning
from realm_jax.training.recipes.plain_training import ContrastiveTraining
from realm_jax.training.recipes.pretraining import ModelConfig, Pretraining
from realm_jax.training.run.optimizer import learning_rate_schedule
from realm_jax.training.run.training_config import TrainingConfig
from tests.experiments import EXPERIMENTS, ROOT, begins, head_of, jobs_of, settings_of

GOLDEN = pathlib.Path(__file__).parent / "golden"
# Of a recipe for several kinds of devices, the first one, and in what the others differ from it.
RECIPES = {
  recipe: [*files]
  for recipe, files in itertools.groupby(EXPERIMENTS, lambda file: file.stem.partition("_v")[0])
}
# tests/t5x_adapter/gin_test.py has those of t5x, which name its modules.
INCLUDED = [f for f in sorted(ROOT.glob("gin/*/*.gin")) if f.parent.name in ("jobs", "models")]
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


def differences(prefix, keywords, values):
  """Yields a line for each setting that is not the default of the job."""
  for keyword in keywords:
    if keyword.name not in values:
      continue
    value, name = values[keyword.name], f"{prefix}{keyword.name}"
    if dataclasses.is_dataclass(value) and keyword.config is type(value):
      default = keyword.default if dataclasses.is_dataclass(keyword.default) else None
      inner = flags.keywords(type(value), instance=default)
      yield from differences(f"{name}.", inner, vars(value))
    elif value != keyword.default:
      yield f"  {name} = {value!r}"


def of_one_layer(config):
  return dataclasses.replace(config, num_layers=1)


def shallow_encoder(config):
  """The layers are alike: one is enough to see that a batch goes through."""
  if not isinstance(config, DualEncoderConfig):
    return config
  return dataclasses.replace(config, bert=of_one_layer(config.bert))


@functools.cache
def parameters_have_shapes(pretraining):
  return bool(jax.tree.leaves(jax.eval_shape(pretraining.init_params, jax.random.key(0))))


@functools.cache
def the_loss_is_a_number(pretraining):
  key = jax.random.key(0)
  params = jax.eval_shape(pretraining.init_params, key)
  batch = pretraining.abstract_batch()
  (_, objective), *_ = pretraining.objective.weighted_terms()
  gradients = functools.partial(objective.build(pretraining.model.make()).gradients, parts=1)
  _, figures = jax.eval_shape(gradients, params, batch, key)
  return LOSS in figures and all(leaf.shape == () for leaf in jax.tree.leaves(figures))


def check_pretraining(given):
  # What no shape depends on is made equal, so that equal models are made once.
  pretraining = Pretraining(
    data=dataclasses.replace(given.data, batch_size=2, mask="salient_span"),
    model=given.model,
    retrieval=given.retrieval,
    objective=given.objective,
  )
  encoders = given.model
  shallow = ModelConfig(
    dual_encoder=shallow_encoder(encoders.dual_encoder),
    knowledge_augmented_encoder=of_one_layer(encoders.knowledge_augmented_encoder),
  )
  assert the_loss_is_a_number(dataclasses.replace(pretraining, model=shallow))
  data = MaskedQueryData(batch_size=2, query_length=8, max_masks=1)
  assert parameters_have_shapes(Pretraining(data=data, model=encoders, retrieval=RetrievalConfig()))


def check_pairs(given):
  model = shallow_encoder(given.dual_encoder).make()
  lengths = (given.data.query_length, given.data.passage_length)
  query, passage = (example_tokens(2, length) for length in lengths)
  pairs = datatypes.Pairs(query=query, passage=passage, uid_B=jnp.zeros(2))

  def scores(key):
    inputs = {"deterministic": True, "method": "encode_pairs"}
    return jnp.einsum("BE,FE->BF", *model.init_with_output(key, pairs, **inputs)[0])

  assert jax.eval_shape(scores, jax.random.key(0)).shape == (2, 2)


def check_trainings(values):
  """Makes the models as shapes, and looks where the schedules end; returns how many models."""
  trainings = [value for value in values.values() if isinstance(value, TrainingConfig)]
  for training in trainings:
    num_steps = training.run.num_steps  # 0 writes what a model begins with
    assert 0 <= training.optimizer.warmup(num_steps) < max(1, num_steps)
    if isinstance(training, Pretraining):
      check_pretraining(training)
    elif isinstance(training, ContrastiveTraining):
      check_pairs(training)
  return sum(not isinstance(training, Finetuning) for training in trainings)


@pytest.mark.parametrize(("recipe", "files"), RECIPES.items(), ids=RECIPES)
def test_an_experiment_is_what_it_was_and_its_models_have_shapes(recipe, files):
  lines, first = [], []
  for file in files:
    found, models = [], 0
    for name, job in jobs_of(file).items():
      values = settings_of(job, str(file.relative_to(ROOT)))
      found += [name, *differences("", flags.keywords(job), values)]
      models += check_trainings(values)
    # Fine-tunings take their models from checkpoints.
    assert models > 0 or recipe.startswith("finetune")
    lines += (
      difflib.unified_diff(first, found, tofile=file.stem, lineterm="", n=0) if lines else found
    )
    first = first or found
  check_golden(recipe, "\n".join(lines) + "\n")


def test_the_schedule_ends_with_the_run_that_the_command_line_asks_for():
  job = main.find("pretrain")
  values = {"pretraining.run.num_steps": 1000}
  file = "gin/experiments/realm_wikipedia_v3.gin"
  configuration.configure(job, gin_files=[file], values=values)
  pretraining = gin.get_bindings(job)["pretraining"]
  num_steps = pretraining.run.num_steps
  rate = learning_rate_schedule(pretraining.optimizer, num_steps=num_steps)
  assert num_steps == 1000
  assert rate(1000) == 0 < rate(999) < rate(500) < rate(100) < pretraining.optimizer.learning_rate


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_a_recipe_begins_with_a_retriever_and_with_a_reader(file):
  for name, job in jobs_of(file).items():
    if name not in ("pretrain", "launch_local") or file.stem == "tiny":  # which learns nothing
      continue
    values = settings_of(job, str(file.relative_to(ROOT)))
    head = head_of(file)
    assert begins("dual_encoder", name, values, head), name
    # A retriever that stands still unlearns nothing beside a reader that begins at random.
    safe = not values["pretraining"].dual_encoder_learns
    assert safe or begins("knowledge_augmented_encoder", name, values, head), name


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_a_sweep_is_what_it_was_and_its_models_have_shapes(file):
  plan = sweep.read_sweep(str(file))
  job = main.find(plan.job)
  lines = [f"{plan.job} {plan.gin_file}"]
  shown, first = set(), None
  for unit in plan.units:
    if unit.row in shown:
      continue
    shown.add(unit.row)
    values = settings_of(job, plan.gin_file, [f"{k}={v}" for k, v in unit.bindings.items()])
    assert check_trainings(values) > 0
    now = list(differences("", flags.keywords(job), values))
    lines += [unit.row, *(line for line in now if first is None or line not in first)]
    first = first or now
  check_golden(f"{file.stem}.sweep", "\n".join(lines) + "\n")


@pytest.mark.parametrize("file", INCLUDED, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_what_experiments_include_binds_only_names_that_exist(file):
  gin.parse_config_file(str(file))


@pytest.mark.parametrize("file", [*EXPERIMENTS, *SWEEPS], ids=lambda file: file.name)
def test_it_is_short_and_its_head_says_command_hardware_time_and_what_to_expect(file):
  lines = file.read_text("utf-8").splitlines()
  assert file in SWEEPS or sum(line.strip() != "" and line[0] != "#" for line in lines) <= 30
  head = head_of(file).partition("\n\n")[0]
  for word in ("realm ", file.name, "Hardware", "Time", "Expect"):
    assert word.lower() in head.lower(), f"{file.name} says nothing of {word}"
