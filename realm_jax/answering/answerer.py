"""The common base of what answers masked sentences and questions."""

import abc
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

from realm_jax.answering.editable_corpus import EditableCorpus
from realm_jax.answering.explanation import Explanation, GenerationRanking
from realm_jax.corpus.edits import Edits
from realm_jax.devices.datatypes import Array, Tokens
from realm_jax.text.wordpieces import MASK

Kind = Literal["mask", "question"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnsweringModel:
  """A compiled model; subclasses add what their answerer needs.

  Attributes:
    encode_query: Jitted, `(params, Tokens [B, L]) -> [B, E]`.
    read: Jitted, `(params, batch) -> ...`.
    query_length: L.
  """

  params: dict
  encode_query: Callable[[dict, Tokens], Array]
  read: Callable[[dict, Any], Any]
  query_length: int
  step: int = 0


Model = TypeVar("Model", bound=AnsweringModel)


class Answerer(abc.ABC, Generic[Model]):
  """Answers texts with one checkpoint and one index generation, and explains the answers.

  Attributes:
    kind: The kind of query: a sentence with a `[MASK]`, or a question.
    corpus: The corpus, with the generation.
  """

  kind: ClassVar[Kind]

  def __init__(self, model: Model, corpus: EditableCorpus):
    self.model = model
    self.corpus = corpus
    self.step = model.step

  def explain(
    self,
    texts: Sequence[str],
    *,
    answers: int = 5,
    target: str | None = None,
    edits: Edits = Edits(),
    with_rankings: bool = False,
  ) -> list[Explanation]:
    """Answers each text and explains the answer by the passages.

    Args:
      target: An answer to explain instead of the most likely one.
      with_rankings: Whether to search earlier generations as well.

    Raises:
      ValueError: If the model cannot take a text or the target, or no passage is left to read.
    """
    explanations = []
    for explanation, query in self._explained(texts, answers, target, edits):
      if with_rankings:
        explanation = dataclasses.replace(explanation, rankings=self._rankings(query))
      explanations.append(explanation)
    return explanations

  @abc.abstractmethod
  def _explained(
    self, texts: Sequence[str], answers: int, target: str | None, edits: Edits
  ) -> Iterator[tuple[Explanation, Tokens]]:
    """Yields each explanation with the query `[1, L]` used for the search."""

  def warm_up(self, *, max_texts: int = 1) -> None:
    """Compiles the programs for up to `max_texts` texts at once."""
    text = MASK if self.kind == "mask" else "warm"
    for doublings in range(max_texts.bit_length()):
      self.explain([text] * (1 << doublings))
    written = self.corpus.write("", "warm")
    self.explain([text], edits=Edits().with_passage(len(self.corpus.store), written))

  def _rankings(self, query: Tokens) -> tuple[GenerationRanking, ...]:
    model = self.model
    return self.corpus.rankings(
      lambda params: model.encode_query(model.params if params is None else params, query)
    )


def power_of_two(number: int) -> int:
  """Returns the smallest power of two not below a number, so that few sizes are compiled."""
  return 1 << (number - 1).bit_length()
