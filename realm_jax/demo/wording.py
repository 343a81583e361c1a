"""Turns facts into sentences and questions, with the byte offsets of the value."""

import dataclasses
import re
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Relation:
  """A property of subjects, with templates for stating it and asking for it.

  Templates contain `{subject}` and `{value}`. They may contain `{noun}` (what the subject is) and,
  directly before the value, `{a}` (its indefinite article).

  Attributes:
    name: Unique; the column name of real facts.
    value_type: Names the set that invented values are drawn from.
    documents: Templates for the knowledge corpus.
    training: Templates for the training corpus, worded differently.
    question: Template of the question for the value.
  """

  name: str
  value_type: str
  documents: Sequence[str]
  training: Sequence[str]
  question: str


@dataclasses.dataclass(frozen=True)
class Sentence:
  """A sentence that states one fact; its value is the UTF-8 bytes `[start, limit)` of `text`."""

  text: str
  start: int
  limit: int


def ask(relation: Relation, *, article: str, subject: str) -> str:
  """Returns the question for a value; `article` is the subject's own, "the" or empty."""
  return relation.question.replace("{subject}", f"{article} {subject}".strip())


def fill(template: str, *, noun: str, article: str, subject: str, value: str) -> Sentence:
  """Fills a template; `article` is the subject's own, "the" or empty."""
  before, after = _surroundings(template, noun=noun, article=article, subject=subject, value=value)
  start = len(before.encode())
  return Sentence(before + value + after, start, start + len(value.encode()))


def is_clear(relation: Relation, *, noun: str, article: str, subject: str, value: str) -> bool:
  """Returns whether every wording has the subject once and the value only in its place.

  Tunisia with Tunis fails, as does Mexico with Mexico City. Case is ignored: Sierra Leone fails
  with leone.
  """
  if _words(subject) in _words(value):
    return False
  for template in (*relation.documents, *relation.training):
    before, after = _surroundings(
      template, noun=noun, article=article, subject=subject, value=value
    )
    rest = f"{before} {after}"
    if value in rest or rest.count(subject) != 1 or _words(value) in _words(rest):
      return False
  return True


def _surroundings(
  template: str, *, noun: str, article: str, subject: str, value: str
) -> tuple[str, str]:
  """Returns the text before and after the value; capitalises the first letter of the sentence."""
  text = template.replace("{noun}", noun).replace("{a}", "an" if value[0] in "aeiou" else "a")
  before, after = text.replace("{subject}", f"{article} {subject}".strip()).split("{value}")
  return before[:1].upper() + before[1:], after


def _words(text: str) -> str:
  """Returns the words in lower case, each between two spaces."""
  words = re.findall(r"[^\W_]+", text.casefold())
  return f" {' '.join(words)} "
