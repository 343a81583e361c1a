"""What goes wrong in a retrieval-augmented training, seen in its figures, with the likely cause.

A pure function of the rows of `metrics.jsonl`: the running training asks it at each write, and a
report asks it of the whole run.
"""

import dataclasses
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from realm_jax.training import guard
from realm_jax.training.objective import LOSS

Row = Mapping[str, Any]
_SKIPPED_SHARE = "skipped_share"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlarmSettings:
  """When figures are alarming.

  Attributes:
    rows: writes in a row that a figure must be bad.
    skipped_share: share of the steps that are skipped, above which nothing is learned.
    null_mass: mean p(null|x) above which nothing is retrieved any more.
    entropy: mean entropy of p(z|x) in nats below which one passage has all the probability.
    hub_share: share of a batch's queries that get the same passage, above which it is a hub.
    utility_rows: writes in a row with a retrieval utility of 0 or less.
    silent_intervals: times the builder's usual interval between two generations.
    silent_seconds: age of a generation below which the builder is never called silent.
  """

  rows: int = 3
  skipped_share: float = 0.5
  null_mass: float = 0.95
  entropy: float = 0.01
  hub_share: float = 0.5
  utility_rows: int = 10
  silent_intervals: float = 5.0
  silent_seconds: float = 120.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alarm:
  """One thing that is wrong.

  Attributes:
    name: what it is.
    first_step: step of the first bad row.
    last_step: of the last one.
    figure: what was seen.
    cause: why, most likely, and what helps.
  """

  name: str
  first_step: int
  last_step: int
  figure: str
  cause: str

  def __str__(self) -> str:
    return f"{self.name} since step {self.first_step}: {self.figure}. {self.cause}"


def find(rows: Sequence[Row], *, settings: AlarmSettings = AlarmSettings()) -> list[Alarm]:
  """Returns the alarms of a run, in the order in which they began; one for each stretch of rows."""
  alarms = []
  rows = _with_skipped_share(rows)
  for name, figure, bad, length, cause in _rules(settings):
    for first, last in _runs([figure in row and bad(row[figure]) for row in rows], length):
      value = rows[last][figure]
      alarms.append(
        Alarm(
          name=name,
          first_step=int(rows[first]["step"]),
          last_step=int(rows[last]["step"]),
          figure=f"{figure} is {'not finite' if value is None else f'{value:.3g}'}",
          cause=cause,
        )
      )
  alarms += [*_silences(rows, settings), *_holds(rows)]
  return sorted(alarms, key=lambda alarm: alarm.first_step)


def _rules(settings: AlarmSettings) -> list[tuple[str, str, Callable, int, str]]:
  """Returns name, figure, when it is bad, for how many rows, and the likely cause."""

  def above(limit: float) -> Callable[[float | None], bool]:
    return lambda value: value is not None and value > limit

  def below(limit: float) -> Callable[[float | None], bool]:
    return lambda value: value is not None and value < limit

  return [
    (
      "steps skipped",
      _SKIPPED_SHARE,
      above(settings.skipped_share),
      settings.rows,
      "Gradients are not finite, so nothing is learned: lower the learning rate or set clip_norm, "
      "and go on from a checkpoint before this step",
    ),
    (
      "loss not finite",
      LOSS,
      lambda value: value is None,
      settings.rows,
      "Parameters or activations have overflowed: go on from a checkpoint before this step with a "
      "lower learning rate, or compute in float32",
    ),
    (
      "null mass",
      "retrieval/null_mass",
      above(settings.null_mass),
      settings.rows,
      "The reader ignores what is retrieved, so the retriever learns to retrieve nothing: warm it "
      "up longer, teach the reader to read first, or freeze the dual encoder for the first steps",
    ),
    (
      "entropy collapse",
      "retrieval/retrieval_entropy",
      below(settings.entropy),
      settings.rows,
      "One passage has all the probability and no other can prove better: lower the dual encoder's "
      "learning rate or raise its temperature",
    ),
    (
      "one passage for everything",
      "retrieval/hub_share",
      above(settings.hub_share),
      settings.rows,
      "The embeddings of queries have collapsed, or the index is of other parameters: look at the "
      "drift and the hubness of the generation, and warm-start the dual encoder",
    ),
    (
      "retrieval does not help",
      "retrieval/retrieval_utility",
      lambda value: value is not None and value <= 0,
      settings.utility_rows,
      "The answer is as likely without the passages: the reader has not learned to read yet, or "
      "the corpus does not hold the answers",
    ),
  ]


def _with_skipped_share(rows: Sequence[Row]) -> list[Row]:
  """Adds to each row the share of its steps that were skipped, of the count so far."""
  shares = [
    (row["skipped_steps"] - before["skipped_steps"]) / max(row["step"] - before["step"], 1)
    if row.get("skipped_steps") is not None and before.get("skipped_steps") is not None
    else None
    for before, row in itertools.pairwise(rows)
  ]
  return [{**row, _SKIPPED_SHARE: share} for row, share in zip(rows, [None, *shares], strict=False)]


def _silences(rows: Sequence[Row], settings: AlarmSettings) -> list[Alarm]:
  """Finds where the generation in use got far older than generations usually do."""
  bad, longest, before = [], None, None
  for row in rows:
    age, generation = row.get("index/age_seconds"), row.get("index/generation")
    if before is not None and generation is not None and generation > before["index/generation"]:
      longest = max(longest or 0.0, before["index/age_seconds"])
    # Before the first swap the run may have been told to stay with one generation.
    bad.append(
      longest is not None
      and age is not None
      and age > max(settings.silent_seconds, settings.silent_intervals * longest)
    )
    if age is not None and generation is not None:
      before = row
  return [
    Alarm(
      name="builder silent",
      first_step=int(rows[first]["step"]),
      last_step=int(rows[last]["step"]),
      figure=f"the index generation is {rows[last]['index/age_seconds']:.0f} s old",
      cause="The index builder has died, waits for a checkpoint, or is too slow: look at its log, "
      "and start `realm build_index --follow=true` again",
    )
    for first, last in _runs(bad, 1)
  ]


def _holds(rows: Sequence[Row]) -> list[Alarm]:
  """Finds where the guard holds the dual encoder for more than that retrieval does not help yet."""
  free = itertools.accumulate((row.get(guard.STATE) == guard.FREE for row in rows), operator.or_)
  bad = [guard.held_for_cause(row, was_free=was) for row, was in zip(rows, free, strict=True)]
  return [
    Alarm(
      name="dual encoder held",
      first_step=int(rows[first]["step"]),
      last_step=int(rows[last]["step"]),
      figure=f"it is {guard.words(rows[last])}",
      cause="It is let go once retrieval helps again; if it is not, go on from a checkpoint before "
      "this step with a lower learning rate of the dual encoder, or warm-start it anew",
    )
    for first, last in _runs(bad, 1)
  ]


def _runs(flags: Sequence[bool], length: int) -> list[tuple[int, int]]:
  """Returns first and last index of each stretch of at least so many true flags."""
  found = []
  for value, group in itertools.groupby(range(len(flags)), key=lambda i: flags[i]):
    places = list(group)
    if value and len(places) >= length:
      found.append((places[0], places[-1]))
  return found
