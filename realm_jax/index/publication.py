"""Publishes embeddings of a corpus as the next generation of an index.

Until then those that are finished are kept, so that a killed builder continues from them: the
embeddings of consecutive passages are an array folder, described by what they depend on.
"""

import bisect
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import numpy as np
from absl import logging

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices import partitioning, processes
from realm_jax.devices.datatypes import Tokens
from realm_jax.foundations import array_folder, json_fields, object_store
from realm_jax.foundations.array_folder import FOLDER_FILE, FolderKind
from realm_jax.foundations.output_kinds import DirectoryKind
from realm_jax.index import assembly, generations
from realm_jax.index.vectors import exact_searcher
from realm_jax.index.vectors.searcher import (
  CorpusSearcherConfig,
  IndexPart,
  Searcher,
  ShardedSearcher,
  SpreadSearcher,
  own_part,
  recall_at_k,
)

_UNFINISHED = DirectoryKind(
  name="a directory of unfinished embeddings",
  files=tuple(f"[0-9]*/*_*/{name}" for name in (FOLDER_FILE, "embeddings.bin", ".*")),
)
_PART = FolderKind(
  name="unfinished embeddings", kind="unfinished", format=1, remake="embed the passages again"
)
_RECALL_AT = 10
_STEP = 1.1  # ratio of successive numbers of leaves tried
_SHORTEST, _NUM_MASKS = 8, 2  # of sample queries


def check_corpus(index: str, store: PassageStore) -> None:
  """Checks that the generations of an index are of this corpus and vocabulary."""
  for manifest in _manifests(index):
    found = f"corpus {manifest.corpus_fingerprint}, vocabulary {manifest.vocabulary_digest}"
    own = f"corpus {store.fingerprint}, vocabulary {store.metadata.vocabulary_digest}"
    if found != own:
      raise generations.ForeignGenerationError(
        f"generation {manifest.generation} in {index} is of {found}; {store.directory} is {own}; "
        "give --index another directory, or delete this one if nobody needs it any more"
      )


def check_run(index: str, *, run: str | None, parameters_digest: str, checkpoint: object) -> None:
  """Checks that the generations of an index were made from checkpoints of this run.

  Args:
    run: The name of the checkpoint's run. Imported checkpoints have none, and are one run if they
      have one passage encoder.
    parameters_digest: The digest of its passage encoder.
    checkpoint: What to call it in the message.
  """
  for manifest in _manifests(index):
    same_encoder = manifest.parameters_digest == parameters_digest
    if manifest.run != run or (run is None and not same_encoder):
      raise generations.ForeignGenerationError(
        f"generation {manifest.generation} in {index} is of run {manifest.run} (passage encoder "
        f"{manifest.parameters_digest}), {checkpoint} is of run {run} (passage encoder "
        f"{parameters_digest}); give --index another directory, or let this run take over the "
        "index with --other_runs=accept"
      )


def _manifests(index: str) -> Iterator[generations.Manifest]:
  """Yields the manifests that can be read, the newest first; the others serve nobody."""
  for number in reversed(generations.all_generations(index)):
    try:
      yield generations.read_manifest(index, number)
    except generations.DamagedGenerationError:
      continue


def choose_leaves(
  recall: Callable[[int], float], *, num_leaves: int, target: float
) -> tuple[int, float]:
  """Returns the fewest leaves (within 10 %) whose recall reaches the target, and their recall.

  Returns all leaves if even these do not reach it. Tries at most 6 numbers of leaves for an index
  of 281 leaves, and 7 for 2,000.
  """
  rungs = range(math.ceil(math.log(num_leaves, _STEP)) + 1)
  ladder = sorted({math.ceil(num_leaves / _STEP**rung) for rung in rungs})
  measured = functools.cache(recall)
  place = bisect.bisect_left(ladder, target, key=measured)
  leaves = ladder[min(place, len(ladder) - 1)]
  return leaves, measured(leaves)


def reach_target(
  config: CorpusSearcherConfig,
  shards: Sequence[Mapping[str, np.ndarray]],
  *,
  embeddings_NxE: np.ndarray,
  queries_BxE: np.ndarray,
  part: IndexPart,
) -> tuple[CorpusSearcherConfig, dict[int, float]]:
  """Measures an index, and chooses how many leaves to search unless the settings do.

  All processes must call it together, each with its own queries.

  Returns:
    The settings to search with, and a map from k to the recall@k reached.
  """
  own_exact = exact_searcher.BlockwiseExactSearcher(embeddings_NxE)
  exact = SpreadSearcher(own_exact, part=part).search(queries_BxE, _RECALL_AT)
  # Not every TPU slice compiles a search on just the devices of one of several processes.
  several = jax.process_count() > 1
  alone = partitioning.make_mesh(devices=jax.local_devices()[:1]) if several else None
  own_config = config.with_shards_of_a_process(len(shards))
  own = assembly.assemble(shards, config=own_config, mesh=alone)

  def recall(searcher: Searcher) -> float:
    found = SpreadSearcher(searcher, part=part).search(queries_BxE, _RECALL_AT)
    return float(np.mean(processes.share(recall_at_k(found.ids_BxK, exact.ids_BxK))))

  target = config.target_recall
  if not isinstance(own, ShardedSearcher) or config.num_leaves_to_search or target is None:
    return config, {_RECALL_AT: recall(own)}
  leaves, reached = choose_leaves(
    lambda leaves: recall(own.with_leaves(leaves)), num_leaves=config.num_leaves, target=target
  )
  if reached < target:
    logging.warning(
      "recall@%d is %.3f with all %d leaves searched, target_recall=%s; raise reorder_candidates=%d"
      ", or lower the target",
      _RECALL_AT,
      reached,
      leaves,
      target,
      config.reorder_candidates,
    )
  return dataclasses.replace(config, num_leaves_to_search=leaves), {_RECALL_AT: reached}


def publish(
  index: str,
  embeddings_NxE: np.ndarray,
  *,
  store: PassageStore,
  config: CorpusSearcherConfig,
  queries: Callable[[], np.ndarray],
  training_step: int,
  parameters_digest: str,
  run: str | None = None,
  keep: int,
  part: IndexPart | None = None,
) -> generations.Manifest:
  """Builds the shards, chooses how many leaves to search, and publishes a generation.

  All processes must call it together.

  Args:
    embeddings_NxE: float32 or bfloat16 embeddings of the passages of `part`.
    queries: Returns embedded queries `[B, E]` for measuring approximate search.
    part: The shards of this process; None means all.
  """
  if part is None:
    part = own_part(len(store), num_shards=config.num_shards, index=0, count=1)
  shards = assembly.build_shards(embeddings_NxE, config=config, part=part)
  recall = {}
  if config.is_approximate(len(store)):
    config, recall = reach_target(
      config, shards, embeddings_NxE=embeddings_NxE, queries_BxE=queries(), part=part
    )
  return generations.publish(
    index,
    processes.share(generations.next_number(index))[0],
    shards,
    manifest=generations.Manifest(
      training_step=training_step,
      parameters_digest=parameters_digest,
      run=run,
      corpus_fingerprint=store.fingerprint,
      vocabulary_digest=store.metadata.vocabulary_digest,
      num_passages=len(store),
      embedding_size=embeddings_NxE.shape[1],
      dtype=str(embeddings_NxE.dtype),
      searcher=dataclasses.asdict(config),
      recall=recall,
    ),
    keep=keep,
  )


def sample_queries(
  store: PassageStore, *, num_queries: int, query_length: int, mask_id: int | None
) -> Tokens:
  """Returns `[CLS] x [SEP]`, `[B, L]`, where x is a sequence of wordpieces of a passage.

  The same sequences are drawn every time; `mask_id` replaces some in the middle of each.
  """
  random = np.random.default_rng(0)
  rows = random.integers(len(store), size=num_queries)
  bodies, body_lengths = store.body_ids(rows, length=store.metadata.max_passage_length)
  longest = query_length - 2
  lengths = random.integers(min(_SHORTEST, longest), longest + 1, num_queries)
  lengths = np.minimum(lengths, body_lengths)[:, None]
  firsts = random.integers(0, body_lengths[:, None] - lengths + 1)
  columns = np.arange(query_length)
  places = np.clip(firsts + columns - 1, 0, bodies.shape[1] - 1)
  ids = np.where(columns <= lengths, np.take_along_axis(bodies, places, axis=1), 0)
  if mask_id is not None:
    first_mask = 1 + (lengths - 1) // 2
    masked = (columns >= first_mask) & (columns < first_mask + _NUM_MASKS) & (columns <= lengths)
    ids[masked] = mask_id
  ids[:, 0] = store.metadata.cls_id
  np.put_along_axis(ids, lengths + 1, store.metadata.sep_id, axis=1)
  return Tokens(ids=ids, mask=columns <= lengths + 1, segments=np.zeros_like(ids))


def check_unfinished(index: str) -> None:
  """Checks that nothing else stands where the unfinished embeddings of an index are kept."""
  _UNFINISHED.check(_unfinished_directory(index))


def borders(first: int, stop: int, *, every: int) -> list[int]:
  """Returns where to divide passages to keep them: at multiples, for any number of processes."""
  return [first, *range((first // every + 1) * every, stop, every), stop]


def _unfinished_directory(index: str) -> object_store.Path:
  return object_store.absolute(f"{index.rstrip('/')}.unfinished")


def unfinished_steps(index: str) -> list[int]:
  """Returns the steps of the checkpoints that unfinished generations of an index are made from."""
  directory = _unfinished_directory(index)
  return sorted(int(path.name) for path in directory.iterdir()) if directory.exists() else []


def remove_unfinished(index: str) -> None:
  """Deletes the unfinished embeddings of an index."""
  directory = _unfinished_directory(index)
  if directory.exists():
    directory.rmtree()


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnfinishedEmbeddings:
  """The embeddings of a generation that is being made.

  Attributes:
    step: Step of the checkpoint that embeds.
    identity: What the embeddings depend on besides their rows, such as the encoder's digest.
  """

  index: str
  step: int
  identity: Mapping[str, str | int]

  def load(self, rows: slice, into_NxE: np.ndarray) -> bool:
    """Reads the embeddings of consecutive passages; returns whether they are there and intact."""
    path = self._path(rows)
    try:
      content = object_store.Path(os.path.join(path, FOLDER_FILE)).read_bytes()
      identity, records = array_folder.decode(content, _PART, dict)
      kept = records["embeddings"]
      if (identity, kept.shape, kept.dtype) != (self.identity, into_NxE.shape, into_NxE.dtype.name):
        raise ValueError(f"they are {kept.dtype} {[*kept.shape]} of {identity}")
      into_NxE[:] = array_folder.read_arrays(path, records)["embeddings"]
    except FileNotFoundError:
      return False
    except json_fields.WRONG as error:
      reason = json_fields.reason(error)
      logging.warning("%s cannot be used (%s); embedding these passages", path, reason)
      return False
    return True

  def save(self, rows: slice, embeddings_NxE: np.ndarray) -> None:
    """Writes the embeddings of consecutive passages; a failure is only reported."""
    path, arrays = self._path(rows), {"embeddings": embeddings_NxE}
    try:
      array_folder.write(path, arrays, kind=_PART, description=self.identity)
    except Exception as error:  # the generation does not need them
      logging.warning("could not keep finished embeddings in %s: %s", path, error)

  def _path(self, rows: slice) -> str:
    name = f"{rows.start:012d}_{rows.stop:012d}"
    return os.fspath(_unfinished_directory(self.index) / str(self.step) / name)
