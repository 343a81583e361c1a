import dataclasses
from typing import Literal

import pytest

from realm_jax import choices

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
