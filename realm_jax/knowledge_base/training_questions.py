"""The questions that a knowledge base learns from, which are read before anything computes."""

import dataclasses
import os
import re
from collections.abc import Sequence

from realm_jax.data.questions import Question, read_questions
from realm_jax.knowledge_base.folder import Folder
from realm_jax.knowledge_base.learning import use_memory
from realm_jax.knowledge_base.learning.past_questions import normalized

FEWEST = 100  # questions to learn from and to compare by


def find(
  folder: Folder, path: str | os.PathLike | None, *, minutes: float | None
) -> list[Question] | None:
  """Returns the questions of a file, or those that were fed back; None if these are too few.

  Raises:
    FileNotFoundError: If there is no such file.
    ValueError: If there is no passage or no time, questions are too few, or there are none and no
      encoder.
  """
  if minutes is not None and not minutes > 0:
    raise ValueError(f"minutes={minutes}; learning takes more than 0")
  found = fed_back(folder) if path is None else read_questions(os.fspath(path))
  if path is None and len(found) < FEWEST:
    if minutes is not None:
      raise ValueError(f"minutes={minutes} would do nothing without questions")
    if not folder.newest().commit.settings.encoder:
      raise ValueError(f"{folder.path} has no encoder, so words rank; make it with one to choose")
    return None
  if not folder.newest().num_passages:
    raise ValueError("there are no documents yet, in which questions could find answers")
  return distinct(found)


def fed_back(folder: Folder) -> list[Question]:
  """Returns the past questions that something was useful for; that is an answer like any other."""
  snapshot, questions = folder.newest(), []
  for past in folder.memory.newest().records.values():
    texts = [snapshot.hit(row).text for row in use_memory.rows(snapshot, past.useful)]
    answers = (*past.answers, *(map(re.escape, texts) if past.regex else texts))
    if answers:
      questions.append(Question(id="", text=past.question, answers=answers, regex=past.regex))
  return questions


def distinct(questions: Sequence[Question]) -> list[Question]:
  """Returns each question once, whatever its case and spaces, with all of its answers."""
  found: dict[str, Question] = {}
  for question in questions:
    if key := key_of(question):
      before = found.get(key, question)
      answers = tuple(dict.fromkeys((*before.answers, *question.answers)))
      found[key] = dataclasses.replace(before, answers=answers)
  if len(found) < FEWEST:
    raise ValueError(
      f"{len(found)} different questions are too few to learn from some and to compare by a fifth; "
      f"give at least {FEWEST}, better thousands"
    )
  return [*found.values()]


def key_of(question: Question) -> str:
  """Returns what a question has in common with the same one in other letters and spaces."""
  return normalized(question.text)
