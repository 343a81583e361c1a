"""Opens a checkpoint, a corpus, its vocabulary and an index, and checks them against each other."""

import dataclasses
from collections.abc import Iterable
from typing import Literal

import jax
import numpy as np
from absl import logging

from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.matching_generations import PublishedGenerations
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices import partitioning
from realm_jax.foundations import choices
from realm_jax.index import generations
from realm_jax.index.bm25 import Bm25Retriever, open_postings
from realm_jax.index.fused_searcher import MOST_SCORED, Fusion, Hybrid
from realm_jax.index.neighbours import find_neighbours
from realm_jax.index.searcher import SearcherFactory
from realm_jax.retrieval.index_refresher import LoadedGeneration


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sources:
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
    fusion: How "hybrid" fuses the two.

  Raises:
    ValueError: If a fusion is given and nothing is fused.
  """

  checkpoints: str = ""
  passages: str = ""
  index: str = ""
  step: int | None = None
  generation: int | None = None
  searcher: SearcherFactory | None = None
  retriever: Literal["dense", "bm25", "hybrid"] = "dense"
  fusion: Fusion = Fusion()

  def __post_init__(self):
    choices.check_fields(self)
    given = [n for n, value in vars(self.fusion).items() if value != getattr(Fusion(), n)]
    if given and self.retriever != "hybrid":
      names = ", ".join(f"--{name}" for name in given)
      raise ValueError(f"{names} would do nothing with retriever={self.retriever!r}; omit it")

  def missing(self) -> list[str]:
    """Returns the directories that are not given."""
    return [name for name in ("checkpoints", "passages", "index") if not getattr(self, name)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
  """A checkpoint, a corpus and a generation of its index that match each other.

  Attributes:
    manifest: The manifest of the generation to search.
    loaded: That generation, with its embeddings if the model has a span reader or BM25 is fused.
    hybrid: BM25 in addition to the generation; None with a dense retriever.
  """

  sources: Sources
  saved: saved_models.SavedModel
  store: PassageStore
  manifest: generations.Manifest
  loaded: LoadedGeneration
  mesh: jax.sharding.Mesh
  hybrid: Hybrid | None = None

  def put_on_devices(self, batch):
    """Puts a batch on the devices, replicated, because questions are few and of any number."""
    return jax.device_put(batch, partitioning.sharding(self.mesh))


def open_corpus(passages: str, *, warm_starts: Iterable[str] = ()) -> PassageStore:
  """Opens a corpus; checks its vocabulary, and that warm starts were trained with it."""
  store = PassageStore(passages)
  digest = store.vocabulary.digest
  for directory in warm_starts:
    saved_models.load(directory).check_vocabulary(digest, source="the corpus")
  return store


def open_sources(sources: Sources) -> Opened:
  """Opens a checkpoint for answering from a corpus; warns if another embedded the index.

  Raises:
    FileNotFoundError: If one of them is missing.
    ValueError: If they do not match each other.
  """
  if missing := sources.missing():
    raise ValueError(f"no {' and no '.join(missing)}; give --checkpoints, --passages and --index")
  saved = saved_models.load(sources.checkpoints, step=sources.step)
  store = open_corpus(sources.passages)
  saved.check_vocabulary(store.vocabulary.digest, source=sources.passages)
  if sources.retriever == "hybrid":
    sources.fusion.check_neighbours(len(store))
  published = published_generations(
    sources,
    saved,
    store,
    with_embeddings=saved.description.span_reader is not None or sources.retriever == "hybrid",
  )
  generation = generations.resolve(sources.index, sources.generation)
  manifest = generations.read_manifest(sources.index, generation)
  loaded = published.load(generation)
  opened = Opened(
    sources=sources,
    saved=saved,
    store=store,
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
  postings = open_postings(store)
  bm25, fusion, neighbours = Bm25Retriever([postings]), sources.fusion, None
  if sources.retriever == "bm25":
    return Hybrid(bm25=bm25, fusion=Fusion(by="ranks", weight=0.0))
  assert loaded.embeddings_NxE is not None
  embeddings_NxE = loaded.embeddings_NxE
  if len(store) <= MOST_SCORED:
    # At once, instead of for each batch.
    embeddings_NxE = np.asarray(embeddings_NxE, np.float32)
    if fusion.neighbours:
      documents = [store.document(row) for row in range(len(store))]
      neighbours = find_neighbours(documents, embeddings_NxE=embeddings_NxE, postings=postings)
  return Hybrid(bm25=bm25, fusion=fusion, embeddings_IxE=embeddings_NxE, neighbours=neighbours)


def published_generations(
  sources: Sources,
  saved: saved_models.SavedModel,
  store: PassageStore,
  *,
  with_embeddings: bool = False,
) -> PublishedGenerations:
  """Returns the generations of an index, which reject what mismatches checkpoint or corpus."""
  return PublishedGenerations(
    index=sources.index,
    description=dataclasses.replace(saved.description, corpus_fingerprint=store.fingerprint),
    searcher=sources.searcher,
    with_embeddings=with_embeddings,
  )
