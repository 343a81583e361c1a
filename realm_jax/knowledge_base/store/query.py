"""What is asked of a knowledge base: one table of fields for Python, flags, addresses and tools."""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

from realm_jax.foundations import choices
from realm_jax.knowledge_base.store.columns import Where, conditions
from realm_jax.knowledge_base.store.commits import Ranking

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


@dataclasses.dataclass(frozen=True)
class Query(choices.Checked):
  """A question, and what is wanted of the passages found for it.

  Attributes:
    question: A question, or words to search for.
    k: Passages to find; there are fewer only if fewer match. A reader has its own number.
    where: Conditions on the fields of a document, all of which it has to satisfy, such as `{"year":
      {"gte": 1950, "lt": 1960}, "kind": ["note", "mail"]}`: a value, a list of values, bounds,
      `{"ne": 1955}`, `{"nin": [1955]}` or `{"exists": true}`, also several in one mapping. A field
      that is a list satisfies values and bounds if one of its values does, and `ne` and `nin` if
      none is excluded. One that is null or empty is missing: it satisfies `ne`, `nin` and null.
    by: Ranks by "words", the "encoder" or both, "fused"; None takes what training has chosen.
    exact: Whether to read all embeddings. Otherwise, where there are 20,000 or more, those near
      the question's are read and those of the passages that are best by words, which finds nearly
      the same passages.
    min_answerable: Finds nothing if it is less probable than this, from 0 to 1, that an answer is
      among the passages; only where that is known, because questions were learned from.
    explain: Whether to say what each score is made of, and how far past questions moved passages.
    per_document: The most passages of one document, of the best 3,200; None for any number.
    distinct: Whether passages that are nearly the same are told once, with the ids of the other
      documents in `Hit.same`.
    newer: FIELD:HALF_LIFE, such as date:30, by which newer documents come first: the lead of a
      passage over the last of the best 50, or of k if it is more, halves with each half-life that
      it is older than the newest of them. A field of times counts days, and a time to come is now;
      one of numbers counts its own units. What lacks the field is as old as the oldest.
    around: Passages of the document before and after each one, which `Hit.around` has.
    after: The question before, which this one may follow up: its rarest word is searched as well. A
      `ChatServer` that answers first rewrites the question so that it stands alone.
    rerank: What orders the best 50, or k if it is more, anew: a function of a question and texts
      that returns a score for each, or a `CrossEncoder` of sentence-transformers.
    generate: What writes an answer, instead of the reader, which answers with words of a passage: a
      function of the question and the hits that returns a text which cites them by their numbers
      from 1, such as [2], or NOT FOUND or None; a `ChatServer` is one. It is not called if nothing
      is found, and by no search. `language_model.prompt` makes a prompt of the two.

  Raises:
    ValueError: If the question is no text, or another field is out of its bounds.
  """

  question: choices.Words
  _: dataclasses.KW_ONLY
  k: choices.Count = 5
  where: Annotated[Where, choices.Written("JSON object", conditions)] | None = None
  by: Ranking | None = None
  exact: bool = False
  min_answerable: choices.Share | None = None
  explain: bool = False
  per_document: choices.Count | None = None
  distinct: bool = False
  newer: str | None = None
  around: choices.CountOrZero = 0
  after: choices.Words | None = None
  rerank: Annotated[Any, choices.OBJECT] = None
  generate: Annotated[Any, choices.OBJECT] = None

  def __post_init__(self) -> None:
    check_question(self.question)
    if self.after is not None:
      check_question(self.after, name="after")
    super().__post_init__()


def takes(
  make: Callable[P, Query],
) -> Callable[[Callable[[S, Query], R]], Callable[Concatenate[S, P], R]]:
  """Returns what makes a method of a query one of its fields as keywords: `@takes(Query)`."""

  def with_keywords(method: Callable[[S, Query], R]) -> Callable[Concatenate[S, P], R]:
    @functools.wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
      return method(self, make(*args, **kwargs))

    own, kinds = inspect.signature(method), typing.get_type_hints(make)  # for help: without bounds
    fields = inspect.signature(make).parameters.values()
    fields = [field.replace(annotation=kinds[field.name]) for field in fields]
    own = own.replace(parameters=[*own.parameters.values()][:1] + fields)
    vars(call)["__signature__"] = own
    return call

  return with_keywords


def is_blank(text: str) -> bool:
  """Returns whether a text has nothing that can be seen."""
  return not any(character.isprintable() and not character.isspace() for character in text)


def check_question(question: str, *, name: str = "question") -> None:
  """Raises ValueError unless it can be asked."""
  if not isinstance(question, str):
    raise ValueError(f"{name}={question!r:.60}; ask with a string")
  try:
    question.encode()
  except UnicodeEncodeError as error:
    raise ValueError(f"{name}={question!a:.60} has half of a surrogate pair") from error
