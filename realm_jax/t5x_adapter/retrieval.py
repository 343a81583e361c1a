"""Retrieval for `RetrievingTrainer`, by task: masked queries or questions."""

import abc
import functools
from collections.abc import Callable
from typing import ClassVar

import jax

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import read_questions
from realm_jax.devices import processes
from realm_jax.index.searcher import SearcherFactory
from realm_jax.labels.answer_matching import match_answers
from realm_jax.models.encoder_programs import query_encoder
from realm_jax.retrieval.index_refresher import Generations, LoadedGeneration, OtherRuns
from realm_jax.retrieval.passage_finder import PassageFinder
from realm_jax.retrieval.question_retriever import QuestionRetriever
from realm_jax.retrieval.retriever import Retriever
from realm_jax.saved import saved_models
from realm_jax.saved.opening import open_corpus
from realm_jax.saved.published_generations import PublishedGenerations, generation_made_by
from realm_jax.t5x_adapter import features
from realm_jax.t5x_adapter.models import OpenQaModel, PretrainingModel, RealmModel
from realm_jax.training.checkpoints import Run


class Retrieval(abc.ABC):
  """Opens a corpus and its index for the model in training."""

  with_embeddings: ClassVar[bool] = False  # whether the batch has those of the index

  def __init__(self, store: PassageStore, index: str):
    self._store = store
    self._index = index

  def generations(
    self,
    model: RealmModel,
    *,
    run: Run,
    searcher: SearcherFactory | None,
    other_runs: OtherRuns,
  ) -> Generations:
    """Returns the source of generations, which rejects those that mismatch the model or run."""
    return PublishedGenerations(
      index=self._index,
      description=model.description,
      searcher=searcher,
      with_embeddings=self.with_embeddings,
      run=run,
      other_runs=other_runs,
    )

  @abc.abstractmethod
  def fixed_generation(self, model, params) -> int | None:
    """Returns the generation to stay with; None follows the newest."""

  @abc.abstractmethod
  def finder(
    self, model, loaded: LoadedGeneration, sharding: jax.sharding.NamedSharding
  ) -> PassageFinder:
    """Returns a finder of passages in a generation; queries are embedded with this sharding."""

  @abc.abstractmethod
  def queries(self, batch: features.Features):
    """Returns the queries of this process in a batch of the dataset."""


class MaskedQueryRetrieval(Retrieval):
  """Finds the passages for masked queries, by default in the newest generation."""

  def __init__(self, *, passages: str, index: str, generation: int | None = None):
    super().__init__(PassageStore(passages), index)
    self._generation = generation

  def fixed_generation(self, model: PretrainingModel, params) -> int | None:
    del model, params
    return self._generation

  def finder(
    self, model: PretrainingModel, loaded: LoadedGeneration, sharding: jax.sharding.NamedSharding
  ) -> PassageFinder:
    _, sizes = model.description.mask_filling("the model")
    return Retriever(
      encode_query=_query_encoder(model, sharding),
      searcher=loaded.searcher,
      store=self._store,
      config=sizes,
      rescoring=saved_models.rescoring(
        model.description.dual_encoder, self._store, passage_length=sizes.passage_length
      ),
    )

  def queries(self, batch: features.Features):
    return features.masked_queries(batch)


class QuestionRetrieval(Retrieval):
  """Finds the beams of questions, and their passages with an answer; for `OpenQaModel`.

  Args:
    questions: The task's JSON Lines with `question` and `answer`; questions of another file would
      get these labels.
  """

  with_embeddings = True

  def __init__(
    self,
    *,
    passages: str,
    index: str,
    questions: str,
  ):
    corpus = open_corpus(passages)
    super().__init__(corpus.store, index)
    self._matcher = match_answers(
      read_questions(questions), store=corpus.store, tokenizer=corpus.tokenizer
    )

  def fixed_generation(self, model: OpenQaModel, params) -> int | None:
    """Returns the newest generation if the passage encoder is frozen.

    Raises:
      FileNotFoundError: If there is none.
      ValueError: If it comes from another passage encoder.
    """
    if model.passage_encoder == "trained":
      return None
    encoder = model.description.dual_encoder
    digest = saved_models.passages_digest(encoder, params["dual_encoder"])
    return generation_made_by(digest, self._index)

  def finder(
    self, model: OpenQaModel, loaded: LoadedGeneration, sharding: jax.sharding.NamedSharding
  ) -> PassageFinder:
    description = model.description
    reader, beam = description.question_answering("the model")
    trained = model.passage_encoder == "trained"
    return QuestionRetriever(
      encode_query=_query_encoder(model, sharding),
      loaded=loaded,
      store=self._store,
      config=beam,
      max_span_width=reader.max_span_width,
      matcher=self._matcher,
      fresh_passage_length=description.passage_length if trained else None,
    )

  def queries(self, batch: features.Features):
    return features.questions(batch)


def _query_encoder(model: RealmModel, sharding: jax.sharding.NamedSharding) -> Callable:
  place = functools.partial(processes.place, sharding=sharding)
  return query_encoder(model.description.dual_encoder, place, sharding=sharding)
