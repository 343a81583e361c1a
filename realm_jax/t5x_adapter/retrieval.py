"""Retrieval of passages for the masked queries of `RetrievingTrainer`."""

import functools

import jax

from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.matching_generations import PublishedGenerations
from realm_jax.checkpoints.orbax_files import Run
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices import processes
from realm_jax.index.searcher import SearcherFactory
from realm_jax.models.encoder_programs import query_encoder
from realm_jax.retrieval.index_refresher import Generations, LoadedGeneration, OtherRuns
from realm_jax.retrieval.retriever import Retriever
from realm_jax.t5x_adapter import features
from realm_jax.t5x_adapter.models import PretrainingModel


class MaskedQueryRetrieval:
  """Opens a corpus and its index for the model in training.

  Attributes:
    generation: The generation to stay with; None follows the newest.
  """

  def __init__(self, *, passages: str, index: str, generation: int | None = None):
    self._store = PassageStore(passages)
    self._index = index
    self.generation = generation

  def generations(
    self,
    model: PretrainingModel,
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
      run=run,
      other_runs=other_runs,
    )

  def finder(
    self, model: PretrainingModel, loaded: LoadedGeneration, sharding: jax.sharding.NamedSharding
  ) -> Retriever:
    """Returns a finder of passages in a generation; queries are embedded with this sharding."""
    return Retriever(
      encode_query=query_encoder(
        model.description.dual_encoder,
        functools.partial(processes.place, sharding=sharding),
        sharding=sharding,
      ),
      searcher=loaded.searcher,
      store=self._store,
      config=model.retrieval,
      rescoring=saved_models.rescoring(
        model.description.dual_encoder, self._store, passage_length=model.retrieval.passage_length
      ),
    )

  def queries(self, batch: features.Features):
    """Returns the queries of this process in a batch of the dataset."""
    return features.masked_queries(batch)
