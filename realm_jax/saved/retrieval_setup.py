"""Joins the rooms that retrieval needs: generations, query encoder, predictor, swap log."""

import dataclasses
import functools
import json
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax

from realm_jax import partitioning, processes
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.index import assembly, generations
from realm_jax.inference.predictor import Predictor
from realm_jax.inference.reading import read
from realm_jax.models.encoder_programs import query_encoder_program
from realm_jax.models.realm import RealmPretrainingModel
from realm_jax.retrieval.index_refresher import LoadedGeneration, OtherRuns
from realm_jax.retrieval.retriever import Retriever
from realm_jax.saved.saved_models import ModelDescription, SavedModel
from realm_jax.training import metric_writers
from realm_jax.training.checkpoints import Run

if TYPE_CHECKING:
  from realm_jax.tokenization import WordPieceTokenizer

SWAPS_FILE = "swaps.jsonl"


class PublishedGenerations:
  """The generations of a directory, refused unless they fit a model.

  Args:
    index: directory of the generations.
    description: the model that searches them.
    kind: "exact" searches any generation exactly, "auto" as it was built.
    spread: whether each process loads its part of an index only, see `SpreadSearcher`.
    run: in training, with the model; None: nothing is trained.
    other_runs: whether generations of other runs are refused or accepted. Their steps count as 0,
      so that staleness is what the run itself has trained since it began.
  """

  def __init__(
    self,
    index: str,
    *,
    description: ModelDescription,
    kind: str = "auto",
    spread: bool = False,
    run: Run | None = None,
    other_runs: OtherRuns = "refuse",
  ):
    self._index = index
    self._description = description
    self._kind = kind
    self._spread = spread
    self._run = run
    self._other_runs = other_runs

  def newest(self) -> int | None:
    return generations.newest(self._index)

  def load(self, generation: int) -> LoadedGeneration:
    """Loads a generation for searching.

    Raises:
      ValueError: if it is of another corpus, width or vocabulary.
      ForeignGenerationError: if it is of another run.
      DamagedGenerationError: if it is not what was published.
    """
    manifest = generations.read_manifest(self._index, generation)
    generations.check_compatible(
      manifest,
      corpus_fingerprint=self._description.corpus_fingerprint,
      embedding_size=self._description.dual_encoder.projection_size,
      vocabulary_digest=self._description.vocabulary_digest,
    )
    foreign = self._foreign(manifest)
    if foreign and self._other_runs == "refuse":
      raise generations.ForeignGenerationError(
        f"{self._index} has it from step {manifest.training_step} of {foreign}; make one with "
        f"`realm build_index --checkpoints={self._run.checkpoints}`, name it as the generation to "
        'stay with, or set other_runs="accept" of the refresh'
      )
    return LoadedGeneration(
      generation=generation,
      searcher=assembly.load_searcher(
        self._index, generation, kind=self._kind, spread=self._spread
      ),
      training_step=0 if foreign else manifest.training_step,
      created=manifest.created,
    )

  def _foreign(self, manifest: generations.Manifest) -> str:
    """Says what makes a generation another run's; empty if nothing does."""
    if self._run is None:
      return ""
    if manifest.run != self._run.name:
      return f"run {manifest.run}, and this is run {self._run.name}"
    if not self._run.has_reached(manifest.training_step):
      return f"run {manifest.run}, which has no checkpoint of that step yet or any more"
    return ""

  def load_newest(self) -> LoadedGeneration:
    """Loads the newest generation.

    Raises:
      FileNotFoundError: if there is none.
    """
    newest = self.newest()
    if newest is None:
      raise FileNotFoundError(
        f"no index generation in {self._index}; make one with `realm build_index`"
      )
    return self.load(newest)


def query_encoder(
  model: RealmPretrainingModel, place: Callable, *, sharding: jax.sharding.Sharding | None = None
) -> Callable:
  """Returns `(params, Tokens [B, L]) -> [B, E]` on the devices; it does not wait.

  Args:
    model: with the dual encoder.
    place: puts numpy queries on the devices.
    sharding: of the embeddings; None: as the compiler likes it.
  """
  encode = query_encoder_program(model, sharding=sharding)
  return lambda params, tokens: encode(params, place(tokens))


class SwapLog:
  """Appends each generation taken into use, with its step, to `swaps.jsonl`.

  Args:
    directory: where the run's logs are.
    step: that the run begins after; what a killed run noted later is dropped.
  """

  def __init__(self, directory: str, *, step: int):
    self._path = os.path.join(directory, SWAPS_FILE)
    if processes.is_first():
      os.makedirs(directory, exist_ok=True)
      metric_writers.drop_rows_after(self._path, step)

  def write(self, step: int, loaded: LoadedGeneration) -> None:
    """Notes that the batches from `step` on use a generation; one process notes for all."""
    if not processes.is_first():
      return
    record = {
      "step": step,
      "seconds": time.time(),
      "generation": loaded.generation,
      "training_step": loaded.training_step,
      "created": loaded.created,
    }
    with open(self._path, "a", encoding="utf-8") as file:
      file.write(json.dumps(record) + "\n")


def open_predictor(
  saved: SavedModel, *, passages: str, index: str, generation: int | None, kind: str = "auto"
) -> tuple[Predictor, PassageStore, "WordPieceTokenizer"]:
  """Opens a checkpoint and an index generation for prediction.

  Args:
    saved: the checkpoint.
    passages: directory of the knowledge corpus; it need not be the one trained with.
    index: directory of the generations of that corpus.
    generation: which one; none: the newest.
    kind: see `PublishedGenerations`.

  Raises:
    FileNotFoundError: if one of them is missing.
    ValueError: if they do not fit each other.
  """
  # Text needs TensorFlow, which a training on prepared examples does without.
  from realm_jax import tokenization

  store = PassageStore(passages)
  tokenizer = tokenization.load(os.path.join(passages, "vocabulary"))
  if tokenizer.digest != saved.description.vocabulary_digest:
    raise ValueError(
      f"{saved.path} was trained with vocabulary {saved.description.vocabulary_digest}, {passages} "
      f"was made with {tokenizer.digest}; prepare the corpus with the training's vocabulary"
    )
  description = dataclasses.replace(saved.description, corpus_fingerprint=store.fingerprint)
  published = PublishedGenerations(index, description=description, kind=kind)
  loaded = published.load_newest() if generation is None else published.load(generation)
  mesh = partitioning.make_mesh()
  model, params = saved.pretraining_model(mesh)
  # Answers are few and of any number; every device has the whole batch.
  place = functools.partial(jax.device_put, device=partitioning.sharding(mesh))
  retriever = Retriever(
    encode_query=query_encoder(model, place),
    searcher=loaded.searcher,
    store=store,
    config=description.retrieval,
  )
  predictor = Predictor(
    params=params, read=passage_reader(model, place), retriever=retriever, store=store
  )
  return predictor, store, tokenizer


def passage_reader(model: RealmPretrainingModel, place: Callable) -> Callable:
  """Returns `(params, RetrievedBatch) -> Reading` on the devices."""

  @jax.jit
  def run(params, batch):
    outputs = model.apply({"params": params}, batch, deterministic=True)
    return read(
      outputs.scores_BxK,
      outputs.logits_BxKxMxV,
      batch.queries.mlm_weights_BxM,
      valid_BxK=batch.valid_BxK,
    )

  return lambda params, batch: run(params, place(batch))
