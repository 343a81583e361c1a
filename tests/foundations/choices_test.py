"""Settings that are one of several strings, and counts, checked where they enter."""

import typing
from typing import Literal

import pytest

from realm_jax import main
from realm_jax.command_line import flags
from realm_jax.foundations import choices
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig

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
