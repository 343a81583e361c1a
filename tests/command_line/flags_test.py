"""Keywords as flags: what each type parses, shows and rejects."""

import collections.abc
import dataclasses
import math
from typing import Annotated, Literal

import pytest

from realm_jax.command_line import flags
from realm_jax.foundations import choices
from realm_jax.jobs.answering.ask import ask
from realm_jax.jobs.knowledge_base.questions import search


@pytest.mark.parametrize(
  ("annotation", "shown", "values", "wrong"),
  [
    (str, "TEXT", {"a b": "a b", "": "", "none": "none"}, []),
    (choices.Words | None, "TEXT or none", {"a b": "a b", "none": None}, []),
    (int, "INT", {"1_000": 1000, "-3": -3}, ["ten", "1.5", "none"]),
    (float, "FLOAT", {"3e-5": 3e-5, "inf": math.inf}, ["much"]),
    (bool, "true|false", {"True": True, "false": False}, ["yes"]),
    (int | None, "INT or none", {"none": None, "7": 7}, ["x"]),
    (Literal["span", 2], "span|2", {"span": "span", "2": 2}, ["word"]),
    (Literal["span"] | None, "span or none", {"none": None, "span": "span"}, ["word"]),
    (tuple[int, ...], "INT,...", {"1,2,3": (1, 2, 3), "": ()}, ["1,x"]),
    (tuple[str, int], "TEXT,INT", {"a,2": ("a", 2)}, ["a", "a,2,3"]),
    (list[float], "FLOAT,...", {"0.5,1": [0.5, 1.0]}, []),
    (collections.abc.Sequence[str], "TEXT,...", {"a,b": ("a", "b")}, []),
    (tuple[int, ...] | None, "INT,... or none", {"4": (4,)}, []),
  ],
)
def test_a_type_reads_what_it_shows_and_nothing_else(annotation, shown, values, wrong):
  kind = flags.plain(annotation)
  assert kind and kind.metavar == shown
  for text, value in values.items():
    assert (kind.read(text), type(kind.read(text))) == (value, type(value))
  keyword = flags.Keyword("k", annotation, None, "")
  for text in wrong:
    with pytest.raises(ValueError) as error:
      flags.parse([f"--k={text}"], [keyword])
    assert str(error.value) == f"--k: {text!r} is not {shown}"


def test_a_question_is_asked_as_it_is_typed_and_a_path_may_begin_at_home(monkeypatch):
  monkeypatch.setenv("HOME", "/home/ann")
  found = flags.parse(["~/kb", "~/.ssh or ~", "--after=~"], flags.keywords(search))
  question = {"query.question": "~/.ssh or ~", "query.after": "~"}
  assert found == {"opening.path": "/home/ann/kb", **question}
  assert flags.parse(["~/a [MASK]", "--target=~"], flags.keywords(ask)) == {
    "query": "~/a [MASK]",
    "target": "~",
  }


@pytest.mark.parametrize("annotation", [dict[str, int], tuple[tuple[int, int], ...], int | str])
def test_other_types_are_set_through_gin(annotation):
  assert flags.plain(annotation) is None
  with pytest.raises(ValueError, match="--k is set through gin"):
    flags.parse(["--k=1"], [flags.Keyword("k", annotation, None, "")])


def test_what_imported_models_bring_is_no_flag_and_is_checked_all_the_same():
  @dataclasses.dataclass(frozen=True)
  class Config(choices.Checked):
    size: choices.Count = 8
    prompt: Annotated[tuple[choices.CountOrZero, ...], choices.IMPORTED] = ()
    segments: Annotated[choices.Count, choices.IMPORTED] = 2

  def job(*, config: Config = Config()) -> None: ...

  tree = flags.keywords(job)
  assert "--size" in flags.help_text(tree) and "segments" not in flags.help_text(tree)
  with pytest.raises(ValueError, match="--prompt comes with an imported --start, or is set throu"):
    flags.parse(["--prompt=3"], tree)
  with pytest.raises(ValueError, match="segments=0; give at least 1"):
    Config(segments=0)
  with pytest.raises(ValueError, match="prompt=-1; give at least 0"):
    Config(prompt=(-1,))


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
  found = flags.keywords(_job)
  assert [(k.name, k.annotation, k.default, k.meaning) for k in found] == [
    ("source", str, flags.REQUIRED, "where it reads, on two lines."),
    ("limit", int | None, None, "how many."),
    ("rate", float, 0.5, ""),
  ]


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
  found = {k.name: (k.default, k.overridden) for k in flags.flatten(flags.keywords(_ride))}
  assert found == {
    "bicycle.front.size": (3, True),
    "bicycle.front.spokes": (8, False),
    "bicycle.back.size": (1, False),
    "bicycle.back.spokes": (8, False),
    "bicycle.bell": (False, False),
    "bicycle.spokes": (0, False),
    "size": (0, False),
  }


@pytest.mark.parametrize(
  ("arguments", "values"),
  [
    (["--bicycle.front.size=2"], {"bicycle.front.size": 2}),
    (["--front.size", "2"], {"bicycle.front.size": 2}),
    (["--size=2"], {"size": 2}),  # a whole name means itself
    (["--bell", "--back.spokes=5"], {"bicycle.bell": True, "bicycle.back.spokes": 5}),
    (["--bell", "false", "--size=1", "--size=3"], {"bicycle.bell": False, "size": 3}),
  ],
)
def test_any_ending_that_only_one_flag_has_names_it(arguments, values):
  assert dict(flags.parse(arguments, flags.keywords(_ride))) == values


@pytest.mark.parametrize(
  ("argument", "message"),
  [
    ("--spokes=5", "write --bicycle.front.spokes or --bicycle.back.spokes or --bicycle.spokes$"),
    ("--bicycle.back=5", "write --bicycle.back.size or --bicycle.back.spokes$"),
    ("--font.size=5", r"--font.size \(did you mean --bicycle.front.size\?\)"),
    ("--size", "--size needs a value; write --size=INT"),
    ("word", "unexpected argument 'word'"),
  ],
)
def test_what_names_no_flag_is_refused_with_the_names_that_do(argument, message):
  with pytest.raises(ValueError, match=message):
    flags.parse([argument], flags.keywords(_ride))


def _gather(path: str, texts: collections.abc.Sequence[str] = (), *, limit: int = 0) -> None:
  """Gathers."""


@pytest.mark.parametrize(
  "arguments",
  [
    ["a", "b,c", "d", "--limit=2"],
    ["a", "--limit=2", "b,c", "d"],
    ["--limit", "2", "a", "b,c", "d"],
  ],
)
def test_texts_that_follow_are_the_values_of_a_sequence(arguments):
  values = dict(flags.parse(arguments, flags.keywords(_gather)))
  assert values == {"path": "a", "texts": ("b,c", "d"), "limit": 2}


@pytest.mark.parametrize(
  ("arguments", "texts"),
  [
    (["a", "--limit=2", "--", "--limit=3"], ("--limit=3",)),
    (["--limit=2", "--", "a", "--", "-x", "--help"], ("--", "-x", "--help")),
    (["a", "--limit", "2", "--no cache", "--no cache=b"], ("--no cache", "--no cache=b")),
    (["a", "--limit=2", "--"], ()),
  ],
)
def test_texts_may_begin_like_flags(arguments, texts):
  values = dict(flags.parse(arguments, flags.keywords(_gather)))
  assert values == {"path": "a", "limit": 2} | ({"texts": texts} if texts else {})
