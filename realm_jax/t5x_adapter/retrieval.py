"""Retrieval for `RetrievingTrainer`, by task: masked queries or questions."""

from typing import Literal, Protocol

import jax

from realm_jax import processes
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import read_questions
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
from realm_jax.t5x_adapter.models import OpenQaModel, PretrainingModel
from realm_jax.training.checkpoints import Run


class Retrieval(Protocol):
  """Opens a corpus and its index for the model in training."""

  def generations(self, model, *, run: Run, other_runs: OtherRuns) -> Generations:
    """Returns the source of generations, which rejects those that mismatch the model or run."""
    ...

  def fixed_generation(self, model, params) -> int | None:
    """Returns the generation to stay with; None follows the newest."""
    ...

  def finder(
    self, model, loaded: LoadedGeneration, sharding: jax.sharding.Sharding
  ) -> PassageFinder:
    """Returns a finder of passages in a generation; queries are embedded with this sharding."""
    ...

  def queries(self, batch: features.Features):
    """Returns the queries of this process in a batch of the dataset."""
    ...


class MaskedQueryRetrieval:
  """Finds the passages for masked queries; for `PretrainingModel`.

  Args:
    passages: Directory of the knowledge corpus.
    index: Directory of the index generations.
    generation: Index generation to keep; None follows the newest.
  """

  def __init__(self, *, passages: str, index: str, generation: int | None = None):
    self._store = PassageStore(passages)
    self._index = index
    self._generation = generation

  def generations(self, model: PretrainingModel, *, run: Run, other_runs: OtherRuns) -> Generations:
    return PublishedGenerations(
      index=self._index, description=model.description, run=run, other_runs=other_runs
    )

  def fixed_generation(self, model: PretrainingModel, params) -> int | None:
    del model, params
    return self._generation

  def finder(
    self, model: PretrainingModel, loaded: LoadedGeneration, sharding: jax.sharding.Sharding
  ) -> PassageFinder:
    _, sizes = model.description.mask_filling("the model")
    return Retriever(
      encode_query=query_encoder(
        model.description.dual_encoder,
        lambda tokens: processes.place(tokens, sharding),
        sharding=sharding,
      ),
      searcher=loaded.searcher,
      store=self._store,
      config=sizes,
    )

  def queries(self, batch: features.Features):
    return features.masked_queries(batch)


class QuestionRetrieval:
  """Finds the beams of questions, and their passages with an answer; for `OpenQaModel`.

  Args:
    passages: Directory of the knowledge corpus.
    index: Directory of the index generations.
    questions: The task's JSON Lines with `question` and `answer`; questions of another file would
      get these labels.
    answer_rule: See `realm finetune`.
  """

  def __init__(
    self,
    *,
    passages: str,
    index: str,
    questions: str,
    answer_rule: Literal["words", "original"] = "words",
  ):
    corpus = open_corpus(passages)
    self._store = corpus.store
    self._index = index
    self._matcher = match_answers(
      read_questions(questions),
      store=self._store,
      tokenizer=corpus.tokenizer,
      rule=answer_rule,
    )

  def generations(self, model: OpenQaModel, *, run: Run, other_runs: OtherRuns) -> Generations:
    return PublishedGenerations(
      index=self._index,
      description=model.description,
      with_embeddings=True,
      run=run,
      other_runs=other_runs,
    )

  def fixed_generation(self, model: OpenQaModel, params) -> int | None:
    """Returns the newest generation if the passage encoder is frozen.

    Raises:
      FileNotFoundError: If there is none.
      ValueError: If it comes from another passage encoder.
    """
    if model.passage_encoder == "trained":
      return None
    digest = saved_models.params_digest(params["dual_encoder"]["passage_tower"])
    return generation_made_by(digest, self._index)

  def finder(
    self, model: OpenQaModel, loaded: LoadedGeneration, sharding: jax.sharding.Sharding
  ) -> PassageFinder:
    description = model.description
    reader, beam = description.question_answering("the model")
    return QuestionRetriever(
      encode_query=query_encoder(
        description.dual_encoder,
        lambda tokens: processes.place(tokens, sharding),
        sharding=sharding,
      ),
      loaded=loaded,
      store=self._store,
      config=beam,
      max_span_width=reader.max_span_width,
      matcher=self._matcher,
      fresh_passage_length=(
        description.passage_length if model.passage_encoder == "trained" else None
      ),
    )

  def queries(self, batch: features.Features):
    return features.questions(batch)
