"""The interface of evaluators: what a system is asked, and how its answers are scored."""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from realm_jax.data.questions import Question
from realm_jax.evaluation.result_card import Evaluated
from realm_jax.evaluation.systems import System

_NAME = re.compile(r"[\w.-]+")


class Evaluator(Protocol):
  """A set of questions of one kind.

  Attributes:
    kind: What the questions are, for messages.
    settings: What it uses of the settings of `realm evaluate`, besides those of the system.
    settings_read: What it uses of them to score a file of predictions.
    inputs: The files that the questions come from, by name.
    questions: What is asked.
  """

  kind: ClassVar[str]
  settings: ClassVar[frozenset[str]]
  settings_read: ClassVar[frozenset[str]]

  @property
  def inputs(self) -> Mapping[str, str]: ...

  @property
  def questions(self) -> Sequence[Question]: ...

  def evaluate(self, system: System) -> Evaluated:
    """Asks a system and scores its answers."""
    ...

  def read(self, predictions: str) -> Evaluated:
    """Scores the predictions of a file."""
    ...


def question_sets(questions: str) -> dict[str, str]:
  """Returns the files of questions by name: of `nq=FILE,wq=FILE`, or of one file, named ""."""
  items = [item.partition("=") for item in questions.split(",")]
  if not all(_NAME.fullmatch(name) and file for name, _, file in items):
    return {"": questions}
  sets = {name: file for name, _, file in items}
  if len(sets) < len(items):
    raise ValueError(f"questions={questions} has two sets of one name; give each its own")
  return sets
