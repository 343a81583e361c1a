"""What is asked, and who: BM25, a checkpoint's retriever, both fused, or an answerer."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from realm_jax.answering.open_answerer import question_answerer, question_search
from realm_jax.answering.span_reader import AnswerText
from realm_jax.checkpoints.opening import Opened, Sources, open_corpus, open_sources
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.evaluation.result_card import Evaluated
from realm_jax.foundations import choices
from realm_jax.index.generations import Manifest
from realm_jax.index.words.bm25 import open_bm25

RECALL_AT = (1, 5, 20, 50, 100)
_NAME = re.compile(r"[\w.-]+")
_RETRIEVERS = {"dense": "dual encoder", "bm25": "BM25", "hybrid": "dual encoder and BM25"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asking(choices.Checked):
  """How questions are asked.

  Attributes:
    answer_text: "raw" slices the passage's text; "spaced" separates words from punctuation, as the
      released ORQA does.
    book: For masked sentences, "closed" reads only the null passage.
    recall_at: Values of k for recall@k.
    batch_size: Questions asked at once.
  """

  answer_text: AnswerText = "raw"
  book: Literal["open", "closed"] = "open"
  recall_at: Sequence[choices.Count] = RECALL_AT
  batch_size: choices.Count = 32

  def __post_init__(self):
    super().__post_init__()
    if not self.recall_at:
      raise ValueError("recall_at is empty; give numbers of passages")


@dataclasses.dataclass(frozen=True)
class System:
  """A system under evaluation, which finds passages of a corpus and may answer from them.

  Attributes:
    measured: Its description for a result card.
    retrieve: Called as `retrieve(texts, k=...)`, finds the best passages.
    answer: Called as `answer(texts)`, answers questions; None if it does not.
    opened: The checkpoint with its index; None if there is none.
  """

  store: PassageStore
  measured: dict[str, str]
  retrieve: Callable
  answer: Callable | None = None
  opened: Opened | None = None


class Evaluator(Protocol):
  """A set of questions of one kind, from the files `inputs`."""

  @property
  def inputs(self) -> Mapping[str, str]: ...

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


def open_system(sources: Sources, asking: Asking) -> System:
  """Opens the system to evaluate."""
  if not sources.passages:
    raise ValueError("--passages is missing; give the corpus to search, or --predictions")
  if sources.retriever == "bm25" and not sources.checkpoints:
    store = open_corpus(sources.passages)
    measured = {"retriever": "BM25", "corpus": _described(store)}
    return System(store, measured, open_bm25(store).retrieve)
  if sources.missing():
    raise ValueError(
      "--checkpoints and --index are missing; give both, or --retriever=bm25, or --predictions"
    )
  opened = open_sources(sources)
  saved, manifest = opened.saved, opened.manifest
  measured = {
    "retriever": _RETRIEVERS[sources.retriever],
    "checkpoint": f"{sources.checkpoints}, {_trained(saved.step, saved.run)}",
    "index": (
      f"{sources.index}, generation {manifest.generation} of "
      f"{_trained(manifest.training_step, manifest.run)}, {_search(sources, manifest)}"
    ),
    "corpus": _described(opened.store),
  }
  if sources.retriever == "hybrid":
    measured["fusion"] = f"weight {sources.dense_weight:g} of the dual encoder"
  if saved.description.span_reader is None:
    return System(opened.store, measured, question_search(opened).retrieve, opened=opened)
  answerer = question_answerer(opened, batch_size=asking.batch_size, answer_text=asking.answer_text)
  measured["reader"] = f"spans, answers {asking.answer_text}"
  return System(opened.store, measured, answerer.retrieve, answerer.answer, opened)


def _search(sources: Sources, manifest: Manifest) -> str:
  if sources.searcher is None:
    return f"{manifest.searcher['kind']} search"
  return f"search by {getattr(sources.searcher, '__name__', sources.searcher)}"


def _trained(step: int, run: str | None) -> str:
  return f"step {step}" if run is None else f"step {step} of run {run}"


def _described(store: PassageStore) -> str:
  return f"{store.directory} ({len(store)} passages, fingerprint {store.fingerprint})"
