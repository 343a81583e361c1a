"""A question that was asked, and what was said about the passages that were found for it."""

import base64
import dataclasses
import hashlib
import unicodedata
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from realm_jax.knowledge_base.store.hits import Hit


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgedPassage:
  """A passage that was useful or not.

  Attributes:
    id: The document that it is of.
    passage: Its place in the document, from 0.
    digest: Of its text; it is not meant once it has another one.
  """

  id: str
  passage: int
  digest: str

  @classmethod
  def of(cls, hit: Hit) -> "JudgedPassage":
    """Returns the passage of a hit."""
    return cls(id=hit.id, passage=hit.passage, digest=digest(hit.text))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastQuestion:
  """A question that was asked, and what was said about it.

  Attributes:
    answers: Answers that were given; passages need not have them.
    regex: Whether the answers are regular expressions.
    time: When, in seconds since 1970.
    encoder: Name of the model of the embedding.
    embedding: Of the question: float16, in base 64.
  """

  question: str
  useful: tuple[JudgedPassage, ...] = ()
  not_useful: tuple[JudgedPassage, ...] = ()
  answers: tuple[str, ...] = ()
  regex: bool = False
  time: float = 0.0
  encoder: str = dataclasses.field(default="", repr=False)
  embedding: str = dataclasses.field(default="", repr=False)

  @property
  def key(self) -> str:
    """What it has in common with the same question in other letters and spaces."""
    return normalized(self.question)

  @property
  def judged(self) -> tuple[JudgedPassage, ...]:
    """The passages that something was said about."""
    return *self.useful, *self.not_useful

  @property
  def summary(self) -> dict[str, Any]:
    """What was said, as JSON has it."""
    return {
      "question": self.question,
      "answers": self.answers,
      "useful": [[one.id, one.passage] for one in self.useful],
      "not_useful": [[one.id, one.passage] for one in self.not_useful],
      "time": self.time,
    }

  def after(self, before: "PastQuestion | None") -> "PastQuestion":
    """Returns it with what was said before, unless it says something else."""
    if before is None:
      return self
    new = {*self.judged}
    return dataclasses.replace(
      self,
      useful=(*self.useful, *(one for one in before.useful if one not in new)),
      not_useful=(*self.not_useful, *(one for one in before.not_useful if one not in new)),
      answers=self.answers or before.answers,
      regex=self.regex if self.answers else before.regex,
    )

  def moved(self, ids: Mapping[str, str]) -> "PastQuestion":
    """Returns it with new ids of some documents; several may have become one."""
    useful, not_useful = (
      tuple(dict.fromkeys(dataclasses.replace(one, id=ids.get(one.id, one.id)) for one in judged))
      for judged in (self.useful, self.not_useful)
    )
    return dataclasses.replace(self, useful=useful, not_useful=not_useful)

  def without(self, gone: set[str]) -> "PastQuestion | None":
    """Returns it without some documents; None if nothing else was said about it."""
    kept = self.without_passages(gone)
    return kept if kept.judged or not self.judged else None

  def without_passages(self, named: Collection[str | tuple[str, int]]) -> "PastQuestion":
    """Returns it without documents and passages, by their ids or pairs of these and places."""
    kept = (
      tuple(one for one in judged if one.id not in named and (one.id, one.passage) not in named)
      for judged in (self.useful, self.not_useful)
    )
    return dataclasses.replace(self, **dict(zip(("useful", "not_useful"), kept, strict=True)))

  def with_embedding(self, encoder: str, question_E: np.ndarray) -> "PastQuestion":
    """Returns it with the embedding of the question."""
    content = base64.b64encode(question_E.astype("<f2").tobytes()).decode()
    return dataclasses.replace(self, encoder=encoder, embedding=content)


def normalized(question: str) -> str:
  """Returns what a question has in common with itself in other letters and spaces.

  Letters are compared as Unicode's canonical caseless matching does.
  """
  folded = unicodedata.normalize("NFD", question).casefold()
  return " ".join(unicodedata.normalize("NFC", folded).split())


def digest(text: str) -> str:
  """Returns what tells a text from others."""
  return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
