"""The searcher interface, settings of searchers, and searches of shards, merged exactly."""

import abc
import concurrent.futures
import copy
import dataclasses
import importlib.util
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, Protocol

import jax
import numpy as np

from realm_jax.devices import datatypes, processes
from realm_jax.foundations import choices, system

_PASSAGES_PER_SHARD = 1_000_000
_TREE_RECALL = 0.98
TREES = ("scann", "faiss")
TRAINING_ROWS_PER_LEAF = 200  # that k-means is trained on
DIMENSIONS_PER_CODE = 2  # of ScaNN's asymmetric hashing, 4 bits each


class Searcher(Protocol):
  """Finds the passages whose embeddings have the largest inner product with a query's."""

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the best `k` passages of each query. Threads may call it concurrently."""
    ...


# Makes a searcher of embeddings `[N, E]`, such as `ExactSearcher` and `DeviceSearcher`.
SearcherFactory = Callable[[np.ndarray], Searcher]


class Embeddings(Protocol):
  """Embeddings of passages, read by ids: an array `[N, E]`, possibly with edits."""

  def __getitem__(self, ids: np.ndarray, /) -> np.ndarray:
    """Returns the embeddings `[n, E]` of these ids."""
    ...


def begin(
  searcher: Searcher, queries_BxE: datatypes.Array, k: int
) -> Callable[[], datatypes.SearchResults]:
  """Begins a search for queries on the devices, as far as it need not wait for them.

  Returns:
    A function that completes the search and returns what was found for this process's queries.
  """
  enqueue = getattr(searcher, "begin", None)  # which one on the devices has
  if enqueue is not None:
    return enqueue(queries_BxE, k)
  return lambda: searcher.search(processes.local_rows(queries_BxE).astype(np.float32), k)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearcherConfig(choices.Checked):
  """Settings of searchers; `for_corpus` replaces None by values for N passages.

  The settings of trees apply to a shard of n = N / num_shards passages.

  Attributes:
    kind: "scann" or "faiss", approximate on the host; "exact" on one device; "device", sharded over
      the devices of all processes; or "auto", which is exact for fewer than `min_passages_for_tree`
      passages and else "faiss" where it is installed (the extra `faiss`) and "scann" where not.
    num_shards: The number of shards, searched in parallel. None uses one per million passages.
    num_leaves: The number of k-means partitions. None uses 2 √n.
    num_leaves_to_search: The number of partitions searched per query. None lets the index builder
      choose the fewest that reach `target_recall` on queries of the current encoder.
    reorder_candidates: Candidates rescored with the full embeddings. A search for many passages
      uses more. None uses 100 over all shards.
    min_passages_for_tree: Shards with fewer rows are searched by brute force. Asymmetric hashing is
      trained on 16 or more.
    threads: Threads that build the index or run a search. None uses all cores of the process.
    target_recall: The share of the true best passages that a search should find. None means 0.98
      for "scann" and "faiss", and all for "device".
  """

  kind: Literal["auto", "scann", "faiss", "exact", "device"] = "auto"
  num_shards: choices.Count | None = None
  num_leaves: choices.Count | None = None
  num_leaves_to_search: choices.Count | None = None
  reorder_candidates: choices.Count | None = None
  min_passages_for_tree: Annotated[int, choices.Bounds(least=16)] = 4096
  threads: choices.Count | None = None
  target_recall: Annotated[float, choices.Bounds(above=0, below=1)] | None = None

  def for_corpus(self, num_passages: int) -> "CorpusSearcherConfig":
    """Returns the settings with "auto" and None resolved as far as N determines them."""
    if num_passages < 1:
      raise ValueError("an index needs at least one passage; the corpus has none")
    kind = self.kind
    if kind == "auto":
      kind = "exact" if num_passages < self.min_passages_for_tree else _fastest_tree()
    num_shards = min(self.num_shards or -(-num_passages // _PASSAGES_PER_SHARD), num_passages)
    num_leaves = self.num_leaves or round(2 * math.sqrt(num_passages / num_shards))
    resolved = {
      "kind": kind,
      "num_shards": num_shards,
      "num_leaves": num_leaves,
      "reorder_candidates": self.reorder_candidates or share_of_candidates(100, num_shards),
      "target_recall": self.target_recall or (_TREE_RECALL if kind in TREES else None),
    }
    return CorpusSearcherConfig(**{**dataclasses.asdict(self), **resolved})

  def num_threads(self) -> int:
    """Returns `threads`, by default the number of cores available to the process."""
    return self.threads or system.num_cores()


def _fastest_tree() -> str:
  # It answers twice as many queries at a recall of 0.98 (docs/results/speed.md).
  return "faiss" if importlib.util.find_spec("faiss") else "scann"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusSearcherConfig(SearcherConfig):
  """Settings for one corpus, from `SearcherConfig.for_corpus`; the defaults suit one passage."""

  num_shards: int = 1
  num_leaves: int = 2
  reorder_candidates: int = 100

  def with_shards_of_a_process(self, count: int) -> "CorpusSearcherConfig":
    """Returns the settings of a process that holds `count` of the shards.

    Threads are divided among all shards, so that these few get all of the process's cores.
    """
    return dataclasses.replace(self, threads=self.num_threads() * self.num_shards // count)

  def threads_per_shard(self) -> int:
    """Returns the threads that build or search a shard while the others are at work as well."""
    return max(1, self.num_threads() // self.num_shards)

  def is_approximate(self, num_passages: int) -> bool:
    """Returns whether a search of N passages may miss some of the best ones."""
    largest_shard = -(-num_passages // self.num_shards)
    if self.kind in TREES:
      return largest_shard >= self.min_passages_for_tree
    return self.kind == "device" and self.target_recall is not None


def leaves_to_search(config: CorpusSearcherConfig, k: int, *, num_passages: int) -> int:
  """Returns the leaves of a shard of `num_passages` to search for `k` of them.

  They hold at least 2 k passages on average, in case k is large relative to the shard.
  """
  needed = -(-2 * k * config.num_leaves // num_passages)
  return min(max(needed, config.num_leaves_to_search or config.num_leaves), config.num_leaves)


def candidates_to_rescore(config: CorpusSearcherConfig, k: int) -> int:
  """Returns the candidates of a shard that a search for `k` passages rescores."""
  share = share_of_candidates(4 * k, config.num_shards)
  return max(k, share, config.reorder_candidates)


def share_of_candidates(candidates: int, num_shards: int) -> int:
  """Returns the candidates per shard, allowing for an uneven distribution of the best ones."""
  if num_shards == 1:
    return candidates
  mean = candidates / num_shards
  return math.ceil(mean + 3 * math.sqrt(mean))


@dataclasses.dataclass(frozen=True)
class IndexPart:
  """The consecutive shards of an index of `num_passages` that one process holds."""

  num_passages: int
  shards: slice
  rows: slice


def own_part(num_passages: int, *, num_shards: int, index: int, count: int) -> IndexPart:
  """Returns the shards of process `index` of `count`; processes get nearly equal numbers."""
  if num_shards < count:
    raise ValueError(
      f"{num_shards} shards cannot be spread over {count} processes; build the index with "
      f"num_shards={count} or more"
    )
  shards = split_rows(num_shards, count)[index]
  own = split_rows(num_passages, num_shards)[shards]
  return IndexPart(num_passages, shards, slice(own[0].start, own[-1].stop))


def split_rows(num_rows: int, num_parts: int) -> list[slice]:
  """Returns `num_parts` consecutive slices of nearly equal size that cover all rows."""
  borders = [part * num_rows // num_parts for part in range(num_parts + 1)]
  return [slice(*border) for border in zip(borders, borders[1:], strict=False)]


def check_queries(queries_BxE: np.ndarray, k: int, *, embedding_size: int) -> np.ndarray:
  """Returns the queries as contiguous float32."""
  if k < 1:
    raise ValueError(f"k={k} passages per query; ask for at least 1")
  if queries_BxE.ndim != 2 or queries_BxE.shape[1] != embedding_size or not len(queries_BxE):
    raise ValueError(
      f"queries of shape {queries_BxE.shape} do not fit an index of width {embedding_size};"
      f" encode them as [B, {embedding_size}], B > 0, with the dual encoder that built it"
    )
  queries_BxE = np.ascontiguousarray(queries_BxE, np.float32)
  if not np.isfinite(queries_BxE).all():
    raise ValueError("query embeddings contain NaN or infinity; the query encoder has diverged")
  return queries_BxE


def finite_rows(embeddings_NxE: np.ndarray) -> np.ndarray:
  """Returns the embeddings as contiguous float32.

  Raises:
    ValueError: If one is NaN or infinite, at which ScaNN would abort the process.
  """
  rows_NxE = np.ascontiguousarray(embeddings_NxE, np.float32)
  finite_N = np.isfinite(np.linalg.norm(rows_NxE, axis=1))
  if not finite_N.all():
    bad = np.flatnonzero(~finite_N)
    raise ValueError(
      f"{len(bad)} passage embeddings (the first in row {bad[0]}) contain NaN or infinity;"
      " the passage encoder has diverged"
    )
  return rows_NxE


def pad(results: datatypes.SearchResults, k: int) -> datatypes.SearchResults:
  """Pads results to `k` columns with MISSING_PASSAGE_ID and -inf."""
  num_missing = k - results.ids_BxK.shape[1]
  if not num_missing:
    return results
  missing = ((0, 0), (0, num_missing))
  return datatypes.SearchResults(
    np.pad(results.ids_BxK, missing, constant_values=datatypes.MISSING_PASSAGE_ID),
    np.pad(results.scores_BxK, missing, constant_values=-np.inf),
  )


def merge(results: Sequence[datatypes.SearchResults], k: int) -> datatypes.SearchResults:
  """Merges the results of shards: the best `k`, best first, ties by lower id.

  Args:
    results: The results of each shard, with ids of the whole corpus. Widths may differ.
    k: Columns of the result, padded with -2 and -inf if the shards found fewer.
  """
  ids_BxK = np.concatenate([result.ids_BxK for result in results], axis=1)
  scores_BxK = np.concatenate([result.scores_BxK for result in results], axis=1)
  best_BxK = np.lexsort((ids_BxK, -scores_BxK), axis=-1)[:, :k]
  return pad(
    datatypes.SearchResults(
      np.take_along_axis(ids_BxK, best_BxK, axis=1),
      np.take_along_axis(scores_BxK, best_BxK, axis=1),
    ),
    k,
  )


def recall_at_k(approximate_ids_BxK: np.ndarray, exact_ids_BxK: np.ndarray) -> float:
  """Returns the share of the exact results, empty slots excluded, that approximate search found."""
  found_BxK = (exact_ids_BxK[:, :, None] == approximate_ids_BxK[:, None, :]).any(axis=-1)
  real_BxK = exact_ids_BxK != datatypes.MISSING_PASSAGE_ID
  if not real_BxK.any():
    raise ValueError("recall needs at least one query with a passage; exact search found none")
  return float((found_BxK & real_BxK).sum() / real_BxK.sum())


class Shard(abc.ABC):
  """An index of consecutive rows of the corpus; ids count from the first of them."""

  def __init__(self, embeddings_NxE: np.ndarray, config: CorpusSearcherConfig):
    self.num_passages, self.embedding_size = embeddings_NxE.shape
    self.config = config
    self.threads = config.threads_per_shard()

  @abc.abstractmethod
  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the best `k` rows of the shard, padded with -2 and -inf."""

  def with_leaves(self, num_leaves_to_search: int) -> "Shard":
    """Returns the same shard with another number of leaves to search."""
    shard = copy.copy(self)
    shard.config = dataclasses.replace(self.config, num_leaves_to_search=num_leaves_to_search)
    return shard


class ShardedSearcher:
  """Searches the shards of a corpus in parallel and merges their results exactly."""

  def __init__(self, shards: Sequence[Shard], *, threads: int = 1):
    """Takes the shards in corpus order, and the number of threads for searching them."""
    self._shards = shards
    self._first_rows = np.cumsum([0] + [shard.num_passages for shard in shards[:-1]])
    self._threads = min(threads, len(shards))
    self._pool = concurrent.futures.ThreadPoolExecutor(self._threads, thread_name_prefix="search")

  def with_leaves(self, num_leaves_to_search: int) -> "ShardedSearcher":
    """Returns a searcher that searches another number of leaves in the same shards."""
    shards = [shard.with_leaves(num_leaves_to_search) for shard in self._shards]
    return ShardedSearcher(shards, threads=self._threads)

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns approximately the best `k` passages of each query with exact float32 scores.

    It finds fewer than min(k, N) only if the leaves searched hold fewer.
    """
    width = self._shards[0].embedding_size
    queries_BxE = check_queries(queries_BxE, k, embedding_size=width)
    if len(self._shards) == 1:
      return self._shards[0].search(queries_BxE, k)
    results = []
    remaining = iter(list(zip(self._shards, self._first_rows, strict=True)))

    def work():
      for shard, first_row in remaining:
        ids_BxK, scores_BxK = shard.search(queries_BxE, k)
        ids_BxK[ids_BxK >= 0] += first_row
        results.append(datatypes.SearchResults(ids_BxK, scores_BxK))

    # ScaNN and FAISS release the interpreter lock, so threads search in parallel.
    helpers = [self._pool.submit(work) for _ in range(self._threads - 1)]
    work()
    for helper in helpers:
      if not helper.cancel():  # a thread that has not begun would find nothing to do
        helper.result()
    return merge(results, k)


class SpreadSearcher:
  """Searches the shards of all processes, for corpora that exceed one host's memory.

  It gathers the queries and merges the results exactly.
  All processes must search equally often, each with its own queries, from the thread that
  dispatches their steps. With one process it is equivalent to `own`.
  """

  def __init__(self, own: Searcher, *, part: IndexPart):
    self._own = own
    self._first_row = part.rows.start

  def search(self, queries_BxE: np.ndarray, k: int) -> datatypes.SearchResults:
    """Returns the best `k` passages of the queries of this process."""
    queries, rows = gather_queries(queries_BxE)
    found = self._own.search(queries, k)
    ids_BxK = np.where(found.ids_BxK >= 0, found.ids_BxK + self._first_row, found.ids_BxK)
    everyone = processes.gather({"ids": ids_BxK, "scores": found.scores_BxK})
    return merge(
      [datatypes.SearchResults(part["ids"][rows], part["scores"][rows]) for part in everyone], k
    )


def gather_queries(queries_BxE: np.ndarray) -> tuple[np.ndarray, slice]:
  """Returns the queries of all processes, and which of them are this one's."""
  queries = [part["queries"] for part in processes.gather({"queries": queries_BxE})]
  first = sum(map(len, queries[: jax.process_index()]))
  return np.concatenate(queries), slice(first, first + len(queries_BxE))
