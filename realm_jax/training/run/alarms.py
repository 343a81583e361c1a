"""Detects from the metrics what goes wrong in retrieval-augmented training, with the likely cause.

A pure function of the rows of `metrics.jsonl`, called at each write while training.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from realm_jax.objectives.objective import LOSS

Row = Mapping[str, Any]
_SKIPPED_SHARE, _EXCESS = "skipped_share", "(loss/total - best) / (|best| + 1)"
_ENTROPY, _HUB = "entropy collapse", "one passage for everything"
_SKIPPED, _NOT_FINITE, _FAR = "steps skipped", "loss not finite", "loss far above its best"
MIN_ENTROPY = 0.01  # mean of p(z|x) in nats; below, one passage has all the probability
_ROWS = 3  # successive ones in which a metric is bad
_MAX_SKIPPED_SHARE, _MAX_EXCESS, _MAX_NULL_MASS, _MAX_HUB_SHARE = 0.5, 10, 0.95, 0.5
_USELESS_ROWS = 10  # with a retrieval utility of 0 or less
# A builder is silent if its generation is older than this multiple of the usual interval.
_SILENT_INTERVALS, _SILENT_SECONDS = 5.0, 120.0
# Alarms that end a run, and the steps that they must last: fewer may be the noise of a beginning
# whose metrics are often written.
_LASTING = {_ENTROPY: 50, _HUB: 50, _SKIPPED: 10, _NOT_FINITE: 10, _FAR: 10}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alarm:
  """One alarm.

  Attributes:
    first_step: Step of the first bad row.
    last_step: Step of the last bad row.
    figure: What was observed.
    cause: The likely cause and the remedy.
  """

  name: str
  first_step: int
  last_step: int
  figure: str
  cause: str

  @property
  def diverged(self) -> bool:
    """Whether training itself has failed, not only retrieval."""
    return self.name not in (_ENTROPY, _HUB)

  def __str__(self) -> str:
    return f"{self.name} since step {self.first_step}: {self.figure}. {self.cause}"


def not_finite(step: int) -> Alarm:
  """Returns the alarm of a train state that is not finite, which no further step heals."""
  return Alarm(
    name="parameters not finite",
    first_step=step,
    last_step=step,
    figure="parameters or the optimizer's state have overflowed",
    cause="Lower the learning rate",
  )


def find(rows: Sequence[Row], *, min_entropy: float = MIN_ENTROPY) -> list[Alarm]:
  """Returns the alarms of a run in order of their first step, one per stretch of bad rows."""
  alarms = []
  rows = _with_changes(rows)
  for name, figure, bad, length, cause in _rules(min_entropy):
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
  alarms += _builder_alarms(rows)
  return sorted(alarms, key=lambda alarm: alarm.first_step)


def ending(alarms: Sequence[Alarm], *, step: int) -> Alarm | None:
  """Returns the alarm of a run that has collapsed or diverged and not recovered by `step`."""
  return next(
    (
      alarm
      for alarm in alarms
      if alarm.last_step == step
      and alarm.name in _LASTING
      and step - alarm.first_step >= _LASTING[alarm.name]
    ),
    None,
  )


def is_healthy(rows: Sequence[Row], *, min_entropy: float = MIN_ENTROPY) -> bool:
  """Returns whether the last row shows nothing that would end the run if it lasted."""
  last = _with_changes(rows)[-1]
  return not any(
    name in _LASTING and figure in last and bad(last[figure])
    for name, figure, bad, *_ in _rules(min_entropy)
  )


def _rules(min_entropy: float) -> list[tuple[str, str, Callable, int, str]]:
  """Returns for each rule its name, metric, condition, number of rows and likely cause."""

  def above(limit: float) -> Callable[[float | None], bool]:
    return lambda value: value is not None and value > limit

  def below(limit: float) -> Callable[[float | None], bool]:
    return lambda value: value is not None and value < limit

  return [
    (
      _SKIPPED,
      _SKIPPED_SHARE,
      above(_MAX_SKIPPED_SHARE),
      _ROWS,
      "Gradients are not finite, so nothing is learned: lower the learning rate, and "
      "resume from a checkpoint before this step",
    ),
    (
      _NOT_FINITE,
      LOSS,
      lambda value: value is None,
      _ROWS,
      "Parameters or activations have overflowed: resume from a checkpoint before this step with a "
      "lower learning rate, or compute in float32",
    ),
    (
      _FAR,
      _EXCESS,
      above(_MAX_EXCESS),
      _ROWS,
      "Training diverges: resume from a checkpoint before this step with a lower learning rate",
    ),
    (
      "null mass",
      "retrieval/null_mass",
      above(_MAX_NULL_MASS),
      _ROWS,
      "The reader ignores the passages, so the retriever learns to retrieve nothing: warm-start it "
      "longer, or train the reader first",
    ),
    (
      _ENTROPY,
      "retrieval/retrieval_entropy",
      below(min_entropy),
      _ROWS,
      "One passage has all the probability, so the others get no gradient: lower the learning rate "
      "of the dual encoder or raise its temperature",
    ),
    (
      _HUB,
      "retrieval/hub_share",
      above(_MAX_HUB_SHARE),
      _ROWS,
      "The query embeddings have collapsed, or the index was built with other parameters: look at "
      "the drift and the hubness of the generation, and warm-start the dual encoder",
    ),
    (
      "retrieval does not help",
      "retrieval/retrieval_utility",
      lambda value: value is not None and value <= 0,
      _USELESS_ROWS,
      "The answer is as likely without the passages: the reader has not learned to read yet, or "
      "the corpus does not contain the answers",
    ),
  ]


def _with_changes(rows: Sequence[Row]) -> list[Row]:
  """Adds to each row its share of skipped steps, and how far the loss is above its best so far.

  The first row's steps are counted from step 0.
  """
  found, best, before = [], math.inf, {"step": 0, "skipped_steps": 0}
  for row in rows:
    changes = {}
    if row.get("skipped_steps") is not None and before.get("skipped_steps") is not None:
      num_steps = max(row["step"] - before["step"], 1)
      changes[_SKIPPED_SHARE] = (row["skipped_steps"] - before["skipped_steps"]) / num_steps
    if (loss := row.get(LOSS)) is not None:
      best = min(best, loss)
      changes[_EXCESS] = (loss - best) / (abs(best) + 1)
    found.append({**row, **changes})
    before = row
  return found


def _builder_alarms(rows: Sequence[Row]) -> list[Alarm]:
  """Finds where the generation in use got far older than usual."""
  bad, longest, before = [], None, None
  for row in rows:
    age, generation = row.get("index/age_seconds"), row.get("index/generation")
    if before is not None and generation is not None and generation > before["index/generation"]:
      longest = max(longest or 0.0, before["index/age_seconds"])
    # Before the first swap, the run may be configured to stay with one generation.
    bad.append(
      longest is not None
      and age is not None
      and age > max(_SILENT_SECONDS, _SILENT_INTERVALS * longest)
    )
    if age is not None and generation is not None:
      before = row
  return [
    Alarm(
      name="builder silent",
      first_step=int(rows[first]["step"]),
      last_step=int(rows[last]["step"]),
      figure=f"the index generation is {rows[last]['index/age_seconds']:.0f} s old",
      cause="The index builder has died, is waiting for a checkpoint, or is too slow: look at its "
      "log, and start `realm build_index --follow=true` again",
    )
    for first, last in _runs(bad, 1)
  ]


def _runs(flags: Sequence[bool], length: int) -> list[tuple[int, int]]:
  """Returns the first and last index of each stretch of at least `length` true flags."""
  found = []
  for value, group in itertools.groupby(range(len(flags)), key=lambda i: flags[i]):
    places = list(group)
    if value and len(places) >= length:
      found.append((places[0], places[-1]))
  return found
