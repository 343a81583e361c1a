"""Keywords as flags: what each type parses, shows and rejects."""

import collections.abc
import dataclasses
import math
from typing import Literal

import pytest

from realm_jax import flags


@pytest.mark.parametrize(
  ("annotation", "text", "value"),
  [
    (str, "a b", "a b"),
    (str, "", ""),
    (str, "none", "none"),
    (int, "1_000_000", 1_000_000),
    (int, "-3", -3),
    (float, "3e-5", 3e-5),
    (float, "inf", math.inf),
    (bool, "True", True),
    (bool, "false", False),
    (int | None, "none", None),
    (int | None, "7", 7),
    (Literal["span", "token"], "token", "token"),
    (Literal[1, 2], "2", 2),
    (Literal["span", "token"] | None, "none", None),
    (tuple[int, ...], "1,2,3", (1, 2, 3)),
    (tuple[int, ...], "", ()),
    (tuple[str, int], "a,2", ("a", 2)),
    (list[float], "0.5,1", [0.5, 1.0]),
    (collections.abc.Sequence[str], "a,b", ("a", "b")),
    (tuple[int, ...] | None, "4", (4,)),
  ],
)
def test_reads_a_value_by_its_annotation(annotation, text, value):
  read = flags.read(annotation, text)
  assert read == value
  assert type(read) is type(value)


@pytest.mark.parametrize(
  ("annotation", "text", "message"),
  [
    (int, "ten", "'ten' is not a valid INT"),
    (int, "1.5", "'1.5' is not a valid INT"),
    (int, "none", "'none' is not a valid INT"),
    (float | None, "much", "'much' is not a valid FLOAT"),
    (bool, "yes", "'yes' is neither true nor false"),
    (Literal["span", "token"], "word", "'word' is not one of span, token"),
    (tuple[int, ...], "1,x", "'x' is not a valid INT"),
    (tuple[int, int], "1,2,3", "'1,2,3' has 3 values instead of 2"),
  ],
)
def test_names_the_value_that_does_not_fit(annotation, text, message):
  with pytest.raises(ValueError, match="^" + message + "$"):
    flags.read(annotation, text)


@pytest.mark.parametrize(
  ("annotation", "shown", "plain"),
  [
    (str, "TEXT", True),
    (int | None, "INT or none", True),
    (bool, "true|false", True),
    (Literal["span", "token"], "span|token", True),
    (tuple[int, ...], "INT,...", True),
    (collections.abc.Sequence[Literal["a", "b"]], "a|b,...", True),
    (list[str], "TEXT,...", True),
    (tuple[int, float], "INT,FLOAT", True),
    (flags.Keyword, "Keyword", False),
    (flags.Keyword | None, "realm_jax.flags.Keyword | None", False),
    (dict[str, int], "dict[str, int]", False),
    (tuple[flags.Keyword, ...], "tuple[realm_jax.flags.Keyword, ...]", False),
    (int | str, "int | str", False),
  ],
)
def test_tells_plain_types_from_those_for_gin(annotation, shown, plain):
  assert flags.describe(annotation) == shown
  assert flags.Keyword("k", annotation, None, "").plain is plain


def _job(*, source: str, limit: "int | None" = None, rate: float = 0.5) -> None:
  """Does nothing.

  Args:
    source: where it reads,
      on two lines.
    limit: how many.

  Returns:
    rate: nothing of the kind.
  """


def test_keywords_carry_defaults_and_the_meanings_of_the_docstring():
  assert flags.keywords(_job) == (
    flags.Keyword("source", str, flags.REQUIRED, "where it reads, on two lines."),
    flags.Keyword("limit", int | None, None, "how many."),
    flags.Keyword("rate", float, 0.5, ""),
  )


@dataclasses.dataclass(frozen=True)
class _Wheel:
  """A wheel.

  Attributes:
    size: how large.
    spokes: how many.
  """

  size: int = 1
  spokes: int = 8


@dataclasses.dataclass(frozen=True)
class _Bicycle:
  """Two wheels.

  Attributes:
    front: the first.
    back: the second, perhaps.
    bell: whether it rings.
    spokes: spare ones.
  """

  front: _Wheel = _Wheel(size=3)
  back: _Wheel | None = None
  bell: bool = False
  spokes: int = 0


def _ride(*, bicycle: _Bicycle = _Bicycle(), size: int = 0) -> None:
  """Rides."""


def test_fields_of_dataclasses_are_flags_with_the_defaults_that_stand_there():
  found = {k.name: (k.default, k.overridden) for k in flags.leaves(flags.keywords(_ride))}
  assert found == {
    "bicycle.front.size": (3, True),
    "bicycle.front.spokes": (8, False),
    "bicycle.back.size": (1, False),
    "bicycle.back.spokes": (8, False),
    "bicycle.bell": (False, False),
    "bicycle.spokes": (0, False),
    "size": (0, False),
  }


def _parse(*arguments):
  parser = flags.Parser(prog="ride", description="Rides.")
  parser.add_keywords(flags.keywords(_ride))
  values, unknown = flags.parse(parser, arguments)
  assert unknown == []
  return values


@pytest.mark.parametrize(
  ("argument", "values"),
  [
    ("--bicycle.front.size=2", {"bicycle.front.size": 2}),
    ("--front.size=2", {"bicycle.front.size": 2}),
    ("--size=2", {"size": 2}),  # a whole name means itself
    ("--bell", {"bicycle.bell": True}),
    ("--back.spokes=5", {"bicycle.back.spokes": 5}),
  ],
)
def test_any_ending_that_only_one_flag_has_names_it(argument, values):
  assert _parse(argument) == values


@pytest.mark.parametrize(
  ("argument", "message"),
  [
    (
      "--spokes=5",
      "--spokes: several flags end like this; write --bicycle.front.spokes=5 or "
      "--bicycle.back.spokes=5 or --bicycle.spokes=5",
    ),
    ("--front.size=big", "--front.size: 'big' is not a valid INT"),
  ],
)
def test_an_ambiguous_ending_is_refused_with_the_whole_names(argument, message):
  with pytest.raises(ValueError) as error:
    _parse(argument)
  assert str(error.value) == message
