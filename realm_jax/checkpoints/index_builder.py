"""Embeds a corpus with the passage encoder of checkpoints and publishes generations."""

import concurrent.futures
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np
from absl import logging

from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.orbax_files import first_intact, steps
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices import partitioning, processes
from realm_jax.foundations import progress
from realm_jax.index import generations, publication
from realm_jax.index.builder_config import SAMPLE_QUERIES, BuilderConfig
from realm_jax.index.publication import UnfinishedEmbeddings, sample_queries
from realm_jax.index.vectors.searcher import own_part
from realm_jax.models.encoder import passage_encoder_program
from realm_jax.retrieval import passage_embedding

_BATCHES_KEPT = 1000  # kept together: the last batches of each length are not full


@dataclasses.dataclass(kw_only=True)
class IndexBuilder:
  """Publishes generations of one corpus, reusing compiled programs and the mesh.

  Attributes:
    checkpoints: The directory of the checkpoints.
    index: The directory of the generations.
    still_held: Raises an error if another job may publish to it.
  """

  checkpoints: str
  store: PassageStore
  index: str
  config: BuilderConfig
  still_held: Callable[[], None]

  def __post_init__(self):
    size, count, searcher = len(self.store), jax.process_count(), self.config.searcher
    self._searcher = searcher.for_corpus(size)
    if self._searcher.num_shards < count:
      self._searcher = dataclasses.replace(searcher, num_shards=count).for_corpus(size)
    self._part = own_part(
      size, num_shards=self._searcher.num_shards, index=jax.process_index(), count=count
    )
    self._meshes = partitioning.local_meshes()
    self._mesh = self._meshes[0]

  def step_after(self, built: int | None) -> int | None:
    """Returns the newer intact checkpoint to embed with: one that was begun, or the newest."""
    newer = [step for step in steps(self.checkpoints) if built is None or step > built]
    unfinished = set(newer).intersection(publication.unfinished_steps(self.index)) if newer else ()
    return first_intact(self.checkpoints, [*sorted(unfinished, reverse=True), *newer[::-1]])

  def published(self, step: int) -> bool:
    """Publishes; returns False if the trainer has deleted the checkpoint in the meantime."""
    try:
      self.publish(step=step)
      return True
    except generations.ForeignGenerationError:
      raise
    except Exception as error:
      # Processes may have failed at different points: they end, and are started again.
      if jax.process_count() > 1 or step == max(steps(self.checkpoints), default=None):
        raise
      publication.remove_unfinished(self.index)
      logging.warning("no generation of step %d, there is a newer checkpoint: %s", step, error)
      return False

  def last_training_step(self, *, known: int | None = None) -> int | None:
    """Returns the training step of the newest generation, or `known` if storage cannot be read.

    Returns None if it is damaged, from another run, or from a step that this run has not reached.
    """
    newest, reached = generations.newest(self.index), steps(self.checkpoints)
    if newest is None or not reached or jax.process_index():
      return None
    try:
      manifest = generations.read_manifest(self.index, newest)
      for _ in generations.restore_each(self.index, newest, range(len(manifest.shard_rows))):
        pass
    except generations.DamagedGenerationError as error:
      logging.error("%s", error)
      return None
    except Exception as error:
      logging.warning("cannot check generation %d, will retry: %s", newest, error)
      return known
    same_run = manifest.run == saved_models.load(self.checkpoints).run
    ours = same_run and manifest.training_step <= reached[-1]
    return manifest.training_step if ours else None

  def publish(self, *, step: int | None) -> None:
    """Embeds the corpus with the checkpoint of `step` and publishes the next generation."""
    started = time.perf_counter()
    try:
      saved = saved_models.load(self.checkpoints, step=step)
      encoders, parameters_digest = self._encoders(saved)
      if self.config.other_runs == "refuse":
        publication.check_run(
          self.index, run=saved.run, parameters_digest=parameters_digest, checkpoint=saved.path
        )
      embeddings_NxE = self._embed(saved, encoders, parameters_digest)
      self.still_held()
    except Exception as error:
      processes.share(f"process {jax.process_index()}: {error!r}")
      raise
    failures = [failure for failure in processes.share(None) if failure]
    if failures:
      raise RuntimeError(f"no generation of {saved.path}: {'; '.join(failures)}")
    embedded = time.perf_counter()
    manifest = publication.publish(
      self.index,
      embeddings_NxE,
      store=self.store,
      config=self._searcher,
      queries=functools.partial(self._queries, saved),
      training_step=saved.step,
      parameters_digest=parameters_digest,
      run=saved.run,
      keep=self.config.keep,
      part=self._part,
    )
    if processes.is_first():
      publication.remove_unfinished(self.index)
    finished = time.perf_counter()
    logging.info(
      "generation %d of step %d: %d passages, embedded in %.1f s, "
      "index built and published in %.1f s%s",
      manifest.generation,
      saved.step,
      len(self.store),
      embedded - started,
      finished - embedded,
      _recall(manifest),
    )

  def _encoders(self, saved: saved_models.SavedModel) -> tuple[list[Callable], str]:
    """Returns the passage encoder on each mesh, and its digest."""
    store = self.store
    saved.check_vocabulary(store.metadata.vocabulary_digest, source=store.directory)
    config = saved.description.dual_encoder
    _, params = saved.tower(self._mesh, of="passage")

    def encoder(mesh):
      encode = passage_encoder_program(config, mesh)
      placed = jax.device_put(params, partitioning.sharding(mesh))
      sharding = partitioning.batch_sharding(mesh)
      return lambda tokens: encode(placed, jax.device_put(tokens, sharding))

    return [encoder(mesh) for mesh in self._meshes], saved_models.passages_digest(config, params)

  def _embed(self, saved: saved_models.SavedModel, encoders, digest: str) -> np.ndarray:
    """Returns the embeddings of this process's part."""
    store, description = self.store, saved.description
    kept = UnfinishedEmbeddings(
      index=self.index,
      step=saved.step,
      identity={
        "parameters_digest": digest,
        "corpus_fingerprint": store.fingerprint,
        "passage_length": description.passage_length,
        "dtype": self.config.dtype,
      },
    )
    first, stop = self._part.rows.start, self._part.rows.stop
    batch_size = max(1, self.config.tokens_per_batch // description.passage_length)
    borders = publication.borders(first, stop, every=_BATCHES_KEPT * batch_size)
    size, dtype = description.dual_encoder.embedding_size, np.dtype(self.config.dtype)
    embeddings_NxE = np.empty((stop - first, size), dtype)
    with concurrent.futures.ThreadPoolExecutor(1) as saving:
      for number, rows in enumerate(itertools.starmap(slice, itertools.pairwise(borders)), start=1):
        own_NxE = embeddings_NxE[rows.start - first : rows.stop - first]
        if kept.load(rows, own_NxE):
          logging.info("passages %d to %d are already embedded", rows.start, rows.stop - 1)
          continue
        passages_N = np.arange(rows.start, rows.stop)
        batches = progress.track(
          self._batches(saved, passages_N),
          what=f"batches of passages, part {number} of {len(borders) - 1}",
        )
        own_NxE[:] = passage_embedding.embed_passages(
          batches,
          encoders=encoders,
          passages_N=passages_N,
          embedding_size=size,
          dtype=dtype,
        )
        if rows.stop < stop:  # the last one is published at once
          saving.submit(kept.save, rows, own_NxE)
    return embeddings_NxE

  def _batches(self, saved: saved_models.SavedModel, passages_N: np.ndarray) -> Iterator:
    return passage_embedding.passage_batches(
      self.store,
      passage_length=saved.description.passage_length,
      tokens_per_batch=self.config.tokens_per_batch // jax.process_count() // len(self._meshes),
      multiple_of=self._mesh.shape["data"],
      passages_N=passages_N,
    )

  def _queries(self, saved: saved_models.SavedModel) -> np.ndarray:
    """Embeds the sample queries of this process with the query encoder."""
    description = saved.description
    count, multiple = jax.process_count(), self._mesh.shape["data"]
    tokens = sample_queries(
      self.store,
      num_queries=-(-SAMPLE_QUERIES // (count * multiple)) * count * multiple,
      query_length=description.query_length,
      mask_id=self.store.vocabulary.mask_id if description.max_masks else None,
    )
    own = jax.tree.map(lambda rows: rows[jax.process_index() :: count], tokens)
    _, params = saved.tower(self._mesh, of="query")
    placed = jax.device_put(own, partitioning.batch_sharding(self._mesh))
    encode = passage_encoder_program(description.dual_encoder, self._mesh, of="query")
    return np.asarray(encode(params, placed))


def _recall(manifest: generations.Manifest) -> str:
  """Describes the recall relative to exact search; empty if the search is exact."""
  settings = manifest.searcher
  searched = ""
  if settings["num_leaves_to_search"] is not None:
    searched = f", {settings['num_leaves_to_search']} of {settings['num_leaves']} leaves searched"
  return "".join(
    f", recall@{k} {value:.3f} (target {settings['target_recall']}{searched})"
    for k, value in manifest.recall.items()
  )
