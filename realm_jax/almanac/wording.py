"""How a fact becomes a sentence: templates, filled so that the value's bytes are known."""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Relation:
  """A property of subjects, and the ways to state it.

  Templates hold `{subject}` and `{value}`, may hold `{noun}` (what the subject is) and, directly
  before the value, `{a}` (its indefinite article).

  Attributes:
    name: unique among the relations of a category; a column name for real facts.
    value_type: names the set that invented values are drawn from.
    documents: templates of the knowledge corpus.
    training: templates of the training corpus, in other words.
  """

  name: str
  value_type: str
  documents: tuple[str, str]
  training: tuple[str, str, str]


@dataclasses.dataclass(frozen=True)
class Sentence:
  """A sentence that states one fact; its value is the UTF-8 bytes `[start, limit)` of `text`."""

  text: str
  start: int
  limit: int


def fill(template: str, *, noun: str, article: str, subject: str, value: str) -> Sentence:
  """Fills a template; `article` is the subject's own, "the" or empty."""
  before, after = _surroundings(template, noun=noun, article=article, subject=subject, value=value)
  start = len(before.encode())
  return Sentence(before + value + after, start, start + len(value.encode()))


def is_clear(relation: Relation, *, noun: str, article: str, subject: str, value: str) -> bool:
  """Whether no wording gives the value away, and each names the subject once, beside the value.

  Tunis fails for Tunisia, Mexico City for Mexico; so do words in another case: leone for Sierra
  Leone.
  """
  if _words(subject) in _words(value):
    return False
  for template in relation.documents + relation.training:
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
  """The text before and after the value; the first letter is a capital unless the value's."""
  text = template.replace("{noun}", noun).replace("{a}", "an" if value[0] in "aeiou" else "a")
  before, after = text.replace("{subject}", f"{article} {subject}".strip()).split("{value}")
  return before[:1].upper() + before[1:], after


def _words(text: str) -> str:
  """The words in lower case, each between two spaces."""
  words = re.findall(r"[^\W_]+", text.casefold())
  return f" {' '.join(words)} "
