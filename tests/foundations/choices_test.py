import dataclasses
from typing import Literal

import pytest

from realm_jax.foundations import choices
from realm_jax.objectives.marginal_likelihood import MarginalLikelihood
from realm_jax.runs.example_sources import MaskedQueryData, PairData, QuestionData
from realm_jax.runs.pretraining import Pretraining
from realm_jax.runs.question_evaluation import DevConfig
from realm_jax.runs.training_config import MeshConfig, RunConfig

Size = Literal["small", "large"]


@dataclasses.dataclass(frozen=True)
class Config:
  size: Size = "small"
  name: str = "anything"

  def __post_init__(self):
    choices.check_fields(self)


def test_a_setting_is_one_of_the_choices_of_its_type():
  choices.check(Size, size="small", other="large")
  with pytest.raises(ValueError, match="other='huge'; choose one of small, large"):
    choices.check(Size, size="small", other="huge")


def test_every_literal_field_of_a_dataclass_is_checked():
  assert Config(size="large", name="huge").size == "large"
  with pytest.raises(ValueError, match="size='huge'; choose one of small, large"):
    Config(size="huge")


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
    (MeshConfig, "layout", "spread"),
    (MaskedQueryData, "batch_size", 0),
    (MaskedQueryData, "mask", "spans"),
    (PairData, "passage_length", 0),
    (QuestionData, "answer_rule", "word"),
    (Pretraining, "eval_steps", 0),
    (MarginalLikelihood, "marginalize", "spans"),
    (DevConfig, "eval_every", 0),
  ],
)
def test_a_training_checks_its_settings_where_they_enter(config, setting, value):
  with pytest.raises(ValueError, match=f"^{setting}={value!r}; (give at least 1|choose one of)"):
    config(**{setting: value})
