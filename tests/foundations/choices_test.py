"""Settings that are one of several strings, and counts, checked where they enter."""

import dataclasses
import typing
from typing import Literal

import pytest

from realm_jax import main
from realm_jax.command_line import flags
from realm_jax.foundations import choices
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.runs.example_sources import MaskedQueryData, PairData
from realm_jax.runs.pretraining import Pretraining
from realm_jax.runs.question_evaluation import DevConfig
from realm_jax.runs.training_config import MeshConfig, RunConfig

BERT = {"bert": BertConfig()}


def test_a_setting_is_one_of_the_choices_of_its_type():
  size = Literal["small", "large"]
  choices.check(size, size="small", other="large")
  with pytest.raises(ValueError, match="other='huge'; choose one of small, large"):
    choices.check(size, size="small", other="huge")


def test_every_choice_of_every_job_is_checked_where_it_enters():
  checked = 0
  for config in {c for job in main.JOBS for c in flags.configs(main.find(job))}:
    for name, annotation in typing.get_type_hints(config).items():
      if typing.get_origin(annotation) is Literal:
        with pytest.raises(ValueError, match=f"^{name}='nosuch'; choose one of"):
          config(**(BERT if config is DualEncoderConfig else {}), **{name: "nosuch"})
        checked += 1
  assert checked > 20


def test_counts_have_a_least_value():
  @dataclasses.dataclass(frozen=True)
  class Counts:
    steps: int | None = None
    parts: int = 1

    def __post_init__(self):
      choices.check_counts(self, "steps", least=0)
      choices.check_counts(self, "parts")

  assert Counts(steps=0).parts == 1
  with pytest.raises(ValueError, match="^steps=-1; give at least 0$"):
    Counts(steps=-1)
  with pytest.raises(ValueError, match="^parts=0; give at least 1$"):
    Counts(parts=0)


@pytest.mark.parametrize(
  ("config", "setting", "value"),
  [
    (RunConfig, "log_every", 0),
    (MeshConfig, "accumulate_steps", 0),
    (MaskedQueryData, "batch_size", 0),
    (PairData, "passage_length", 0),
    (Pretraining, "eval_steps", 0),
    (DevConfig, "eval_every", 0),
  ],
)
def test_a_training_checks_its_settings_where_they_enter(config, setting, value):
  with pytest.raises(ValueError, match=f"^{setting}={value!r}; give at least 1"):
    config(**{setting: value})
