"""Opens a checkpoint, a corpus, its vocabulary and an index, and checks them against each other."""

import dataclasses
from collections.abc import Iterable
from typing import Literal

import jax
import numpy as np
from absl import logging

from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.orbax_files import Run
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices import partitioning
from realm_jax.foundations import choices
from realm_jax.index import assembly, generations
from realm_jax.index.fused_searcher import MOST_SCORED, Hybrid
from realm_jax.index.fusion import DENSE_WEIGHT
from realm_jax.index.vectors.searcher import SearcherFactory
from realm_jax.index.words.bm25 import open_bm25
from realm_jax.retrieval.index_refresher import LoadedGeneration, OtherRuns

# A training loads larger indexes in a subprocess: ScaNN holds the interpreter lock for 50 ms.
_MAX_PASSAGES_IN_PROCESS = 50_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sources(choices.Checked):
  """What to answer from.

  Attributes:
    checkpoints: Directory of a training run's checkpoints.
    passages: Directory of the knowledge corpus; it may differ from the one trained with.
    index: Directory of the index generations of that corpus.
    step: Step of the checkpoint; None uses the newest.
    generation: Index generation; None uses the newest.
    searcher: Makes the searcher of the generation's embeddings; None searches it as it was built.
    retriever: What finds passages: the checkpoint's dual encoder ("dense"), "bm25", or both
      ("hybrid"). With "bm25", passages of the dual encoder follow if too few share a word with the
      query. Readers always score the passages with the dual encoder.
    dense_weight: Weight of the dual encoder in "hybrid", from 0 to 1; BM25 has the rest.
  """

  checkpoints: str = ""
  passages: str = ""
  index: str = ""
  step: choices.CountOrZero | None = None
  generation: choices.CountOrZero | None = None
  searcher: SearcherFactory | None = None
  retriever: Literal["dense", "bm25", "hybrid"] = "dense"
  dense_weight: choices.Share = DENSE_WEIGHT

  def missing(self) -> list[str]:
    """Returns the directories that are not given."""
    return [name for name in ("checkpoints", "passages", "index") if not getattr(self, name)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
  """A checkpoint, a corpus and a generation of its index that match each other.

  Attributes:
    published: The generations of the index, which reject what mismatches checkpoint or corpus.
    manifest: The manifest of the generation to search.
    loaded: That generation, with its embeddings if the model has a span reader or BM25 is fused.
    hybrid: BM25 in addition to the generation; None with a dense retriever.
  """

  sources: Sources
  saved: saved_models.SavedModel
  store: PassageStore
  published: "PublishedGenerations"
  manifest: generations.Manifest
  loaded: LoadedGeneration
  mesh: jax.sharding.Mesh
  hybrid: Hybrid | None = None

  def put_on_devices(self, batch):
    """Puts a batch on the devices, replicated, because questions are few and of any number."""
    return jax.device_put(batch, partitioning.sharding(self.mesh))


def open_corpus(passages: str, *, starts: Iterable[str] = ()) -> PassageStore:
  """Opens a corpus; checks its vocabulary, and that what a run starts from was trained with it."""
  store = PassageStore(passages)
  digest = store.vocabulary.digest
  for directory in starts:
    saved_models.load(directory).check_vocabulary(digest, source="the corpus")
  return store


def open_sources(sources: Sources) -> Opened:
  """Opens a checkpoint for answering from a corpus; warns if another embedded the index."""
  if missing := sources.missing():
    raise ValueError(f"no {' and no '.join(missing)}; give --checkpoints, --passages and --index")
  saved = saved_models.load(sources.checkpoints, step=sources.step)
  store = open_corpus(sources.passages)
  saved.check_vocabulary(store.vocabulary.digest, source=sources.passages)
  published = PublishedGenerations(
    index=sources.index,
    description=dataclasses.replace(saved.description, corpus_fingerprint=store.fingerprint),
    searcher=sources.searcher,
    with_embeddings=saved.description.span_reader is not None or sources.retriever == "hybrid",
  )
  generation = generations.resolve(sources.index, sources.generation)
  manifest = generations.read_manifest(sources.index, generation)
  loaded = published.load(generation)
  opened = Opened(
    sources=sources,
    saved=saved,
    store=store,
    published=published,
    manifest=manifest,
    loaded=loaded,
    mesh=partitioning.make_mesh(),
    hybrid=_hybrid(sources, store, loaded),
  )
  # Digests, because fine-tuning keeps a frozen passage encoder under another run and step.
  _, params = saved.tower(opened.mesh, of="passage")
  if (
    saved_models.passages_digest(saved.description.dual_encoder, params)
    != manifest.parameters_digest
  ):
    logging.warning(
      "generation %d in %s was embedded by step %d of run %s, whose passage encoder is not that of "
      "%s (run %s); index this checkpoint with `realm build_index`, or give --step or --generation",
      generation,
      sources.index,
      manifest.training_step,
      manifest.run,
      saved.path,
      saved.run,
    )
  return opened


def _hybrid(sources: Sources, store: PassageStore, loaded: LoadedGeneration) -> Hybrid | None:
  if sources.retriever == "dense":
    return None
  bm25 = open_bm25(store)
  if sources.retriever == "bm25":
    return Hybrid(bm25=bm25)
  assert loaded.embeddings_NxE is not None
  embeddings_NxE = loaded.embeddings_NxE
  if len(store) <= MOST_SCORED:
    # At once, instead of for each batch.
    embeddings_NxE = np.asarray(embeddings_NxE, np.float32)
  return Hybrid(bm25=bm25, weight=sources.dense_weight, embeddings_IxE=embeddings_NxE)


@dataclasses.dataclass(kw_only=True)
class PublishedGenerations:
  """The generations in a directory, checked against a model.

  Attributes:
    description: The model that searches them.
    searcher: Makes the searcher of a generation's embeddings; None searches it as it was built.
    spread: Whether each process loads only its share of an index, see `SpreadSearcher`.
    with_embeddings: Whether to load embeddings in addition to the searcher.
    run: The run that trains the model; None outside training.
    other_runs: Whether to "refuse" or "accept" generations of other runs. The steps of accepted
      ones count as 0, so that staleness is counted from the beginning of this run.
  """

  index: str
  description: saved_models.ModelDescription
  searcher: SearcherFactory | None = None
  spread: bool = False
  with_embeddings: bool = False
  run: Run | None = None
  other_runs: OtherRuns = "refuse"

  def newest(self) -> int | None:
    return generations.newest(self.index)

  def load(self, generation: int) -> LoadedGeneration:
    """Loads a generation for searching.

    Raises:
      ValueError: If its corpus, width or vocabulary differs.
      ForeignGenerationError: If it belongs to another run.
      DamagedGenerationError: If it differs from what was published.
    """
    manifest = generations.read_manifest(self.index, generation)
    generations.check_compatible(
      manifest,
      corpus_fingerprint=self.description.corpus_fingerprint,
      embedding_size=self.description.dual_encoder.embedding_size,
      vocabulary_digest=self.description.vocabulary_digest,
    )
    foreign = self.run is not None and _foreign(manifest, self.run)
    if foreign and self.other_runs == "refuse":
      raise generations.ForeignGenerationError(
        f"{self.index} has it from step {manifest.training_step} of {foreign}, "
        "keep it with --generation, or set --other_runs=accept"
      )
    embeddings_NxE = None
    if self.with_embeddings:
      embeddings_NxE = assembly.load_embeddings(self.index, generation)
    searcher = assembly.load_searcher(
      self.index,
      generation,
      make=self.searcher,
      spread=self.spread,
      in_subprocess=self.run is not None and manifest.num_passages > _MAX_PASSAGES_IN_PROCESS,
    )
    return LoadedGeneration(
      generation=generation,
      training_step=0 if foreign else manifest.training_step,
      created=manifest.created,
      searcher=searcher,
      embeddings_NxE=embeddings_NxE,
    )


def _foreign(manifest: generations.Manifest, run: Run) -> str:
  """Returns why a generation belongs to another run, and the remedy; empty if it does not."""
  rebuild = f"build one with `realm build_index --checkpoints={run.checkpoints}`"
  if manifest.run != run.name:
    return f"run {manifest.run}, and this is run {run.name}; {rebuild}"
  if not run.has_reached(manifest.training_step):
    return f"run {manifest.run}, which has no checkpoint of that step; {rebuild}"
  return ""


def generation_made_by(parameters_digest: str, index: str, *, generation: int | None = None) -> int:
  """Returns the generation to stay with, which must come from the frozen passage encoder."""
  generation = generations.resolve(index, generation)
  manifest = generations.read_manifest(index, generation)
  if manifest.parameters_digest != parameters_digest:
    raise ValueError(
      f"generation {generation} in {index} was built with another passage encoder "
      f"({manifest.parameters_digest}, not {parameters_digest}), at step {manifest.training_step}; "
      "index the retriever's checkpoint with `realm build_index`, or choose its generation"
    )
  return generation
