"""Which passages are right for a masked sentence."""

from collections.abc import Callable, Sequence

import numpy as np

from realm_jax.data.questions import Question
from realm_jax.text.answer_tokens import contains

_SPARE_PASSAGES = 8


def spare(questions: Sequence[Question]) -> int:
  """Returns how many more passages to find, in place of those that give an answer away."""
  return 0 if all(question.passage for question in questions) else _SPARE_PASSAGES


def rank(question: Question, ids_K: np.ndarray, text: Callable[[int], str]) -> int | None:
  """Returns the rank of the first right passage, from 1; None if there is none.

  It has the sentence that states the fact or, if that is unknown, the answer in whole tokens. One
  that gives the answer away has no rank.

  Args:
    text: Returns the text of a passage.
  """
  rank = 0
  for passage in (text(i) if i >= 0 else "" for i in ids_K.tolist()):
    if gives_away(question, passage):
      continue
    rank += 1
    if question.passage in passage if question.passage else contains(passage, question.answer):
      return rank
  return None


def gives_away(question: Question, passage: str) -> bool:
  """Returns whether a passage has the masked sentence itself, if no right one is known."""
  return not question.passage and question.text in passage
