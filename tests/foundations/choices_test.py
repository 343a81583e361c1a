"""Settings that are one of several strings, and counts, checked where they enter."""

import math
import pathlib
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import numpy as np
import pytest

from realm_jax import main
from realm_jax.command_line import flags
from realm_jax.foundations import choices
from realm_jax.knowledge_base.store.query import Query
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.encoder import EncoderConfig
from realm_jax.retrieval.posterior import Posterior

NEEDED = {DualEncoderConfig: {"bert": BertConfig()}, Query: {"question": "moss"}}


def test_a_setting_is_one_of_the_choices_of_its_type():
  size = Literal["small", "large"]
  choices.check(size, size="small", other="large")
  with pytest.raises(ValueError, match="other='huge'; choose one of small, large"):
    choices.check(size, size="small", other="huge")


@pytest.mark.parametrize(
  ("kind", "good", "bad", "remedy"),
  [
    (choices.Count, [1, 7, 10**300], [0, -1, 1.0, "1", None, True, 10**400], "at least 1$"),
    (choices.CountOrZero, [0, np.int64(3)], [-1, 0.5, -(10**400)], "at least 0$"),
    (choices.Seed, [0, 2**63 - 1], [-1, 2**63, 10**23], "at least 0 and below 9223372036854775808"),
    (choices.Positive, [1e-30, 7, 1e300], [0, -1.0, math.nan, math.inf, "1"], "above 0$"),
    (choices.PositiveOrZero, [0, 0.5], [-1e-9, -math.inf, math.nan], "at least 0$"),
    (choices.Share, [0, 0.5, 1], [-0.1, 1.1, math.nan, 10**400], "at least 0 and at most 1$"),
    (choices.Rate, [0.0, 0.999], [1, 1.0, -0.1, math.nan], "at least 0 and below 1$"),
    (choices.Count | None, [None, 1], [0], "at least 1$"),
    (tuple[choices.Count, ...], [(), (1, 2)], [(1, 0)], "at least 1$"),
    (Sequence[choices.Count] | None, [None, [1]], [[0]], "at least 1$"),
    (tuple[tuple[str, choices.Rate], ...], [(("a", 0.5),), ()], [(("a", 0), ("b", 1))], "below 1$"),
  ],
)
def test_a_number_lies_within_the_bounds_of_its_type(kind, good, bad, remedy):
  for value in good:
    choices.check(kind, kind=value)
  for value in bad:
    with pytest.raises(ValueError, match=f"^kind=.*; give .*{remedy}"):
      choices.check(kind, kind=value)


def test_a_fault_is_told_with_the_value():
  with pytest.raises(ValueError, match="^rate=2; give at least 0 and at most 1$"):
    choices.check(choices.Share, rate=2)
  with pytest.raises(ValueError, match=r"^n=5,0; give at least 1$"):
    choices.check(tuple[choices.Count, ...], n=(5, 0))
  with pytest.raises(ValueError, match=r"^n=9{400}; give a smaller one, at least 1$"):
    choices.check(choices.Count, n=10**400 - 1)
  with pytest.raises(ValueError, match=r"^n='5'; give a number \(int\), at least 1$"):
    choices.check(choices.Count, n="5")


@pytest.mark.parametrize(
  ("kind", "good", "bad"),
  [
    (str, ["", "5", pathlib.Path("a")], [5, None, ["a"], math.inf]),
    (bool, [True, False], ["false", 0, None, 1.0]),
    (int, [-1, np.int64(3)], [True, 1.0, "1"]),
    (float, [-1, 0.5, np.float32(2)], [False, "1"]),
    (str | None, [None, "a"], [5, ["a"]]),
    (int | str, [5, "a"], [0.5, None]),
    (tuple[str, ...], [(), ("a", "b"), ["a"]], ["ab", 5, None, {"a": 1}, ("a", 5)]),
    (Sequence[str] | None, [None, ["a"]], ["ab", 5]),
    (list[str], [["a"]], ["a", [5]]),
    (tuple[str, int], [("a", 5)], [("a",), ("a", 5, 5), ()]),
    (EncoderConfig, [DualEncoderConfig(bert=BertConfig())], [[], None, DualEncoderConfig]),
    (Posterior | None, [None], [3, Posterior]),
    (Callable[[int], int], [abs], [3, "abs"]),
  ],
)
def test_what_gin_gives_is_of_the_type_of_the_setting(kind, good, bad):
  for value in good:
    choices.check(kind, kind=value)
  for value in bad:
    with pytest.raises(ValueError, match="^kind=.*; give "):
      choices.check(kind, kind=value)


def bare_numbers(kind):
  """Whether a type has numbers without bounds."""
  if typing.get_origin(kind) is Annotated:
    return not isinstance(kind.__metadata__[0], choices.Bounds) and bare_numbers(kind.__origin__)
  return kind in (int, float) or any(map(bare_numbers, typing.get_args(kind)))


def test_every_number_of_every_job_and_configuration_has_bounds_which_its_help_shows():
  jobs = [main.find(job) for job in main.JOBS]
  configs = {config for job in jobs for config in flags.configs(job)}
  assert len(configs) > 30
  for described in (*jobs, *configs):
    bare = [k.name for k in flags.keywords(described) if bare_numbers(k.annotation)]
    assert not bare, f"{described.__name__} has numbers without bounds: {bare}"
  checked = 0
  for config in configs:
    for keyword in flags.keywords(config):
      if keyword.plain and "INT (at least" in keyword.plain.metavar:
        number = (-1,) if "," in keyword.plain.metavar else -1
        with pytest.raises(ValueError, match=f"^{keyword.name}=-1; give at least"):
          config(**NEEDED.get(config, {}), **{keyword.name: number})
        checked += 1
  assert checked > 70


def test_every_choice_of_every_job_is_checked_where_it_enters():
  checked = 0
  for config in {c for job in main.JOBS for c in flags.configs(main.find(job))}:
    for name, annotation in typing.get_type_hints(config).items():
      if typing.get_origin(annotation) is Literal:
        with pytest.raises(ValueError, match=f"^{name}='nosuch'; choose one of"):
          config(**NEEDED.get(config, {}), **{name: "nosuch"})
        checked += 1
  assert checked > 20
