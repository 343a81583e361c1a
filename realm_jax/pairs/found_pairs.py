"""Mined pairs: a query, its positive passages and its hard negatives."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from realm_jax.corpus.passage_store import StoreMetadata

NO_PASSAGE = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairSettings:
  """How many pairs to mine, and how many passages each has.

  Attributes:
    num_queries: Maximum number of spans drawn from the corpus.
    query_length: Maximum wordpieces of a query; longer queries are truncated.
    num_right: Maximum number of positive passages per query; the best are kept.
    num_wrong: Maximum number of hard negatives per query; the hardest are kept.
    seed: Seeds the draws and the order of the pairs.
  """

  num_queries: int = 50_000
  query_length: int = 64
  num_right: int = 8
  num_wrong: int = 4
  seed: int = 0

  def __post_init__(self):
    for name in ("num_queries", "num_right"):
      if getattr(self, name) < 1:
        raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")
    if self.num_wrong < 0:
      raise ValueError(f"num_wrong={self.num_wrong}; it must be at least 0")
    if self.query_length < 3:
      raise ValueError(f"query_length={self.query_length}; [CLS] x [SEP] needs at least 3")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundPair:
  """A query and its passages, as rows of the store.

  Attributes:
    query: Its wordpieces without special tokens.
    right: Positive passages, at least one, best first.
    wrong: Hard negatives, hardest first.
  """

  query: np.ndarray
  right: Sequence[int]
  wrong: Sequence[int]


def features(
  pairs: Sequence[FoundPair], settings: PairSettings, corpus: StoreMetadata
) -> dict[str, np.ndarray]:
  """Returns pairs as arrays: `query` `[n, L]`, `right` and `wrong`, padded with `NO_PASSAGE`."""
  room = settings.query_length - 2
  queries = [[corpus.cls_id, *pair.query[:room].tolist(), corpus.sep_id] for pair in pairs]
  return {
    "query": _rows(queries, settings.query_length, filling=0).astype(np.int32),
    "right": _rows([pair.right for pair in pairs], settings.num_right, filling=NO_PASSAGE),
    "wrong": _rows([pair.wrong for pair in pairs], settings.num_wrong, filling=NO_PASSAGE),
  }


def _rows(values: Sequence[Sequence[int]], length: int, *, filling: int) -> np.ndarray:
  rows_FxL = np.full((len(values), length), filling, np.int64)
  for row_L, value in zip(rows_FxL, values, strict=True):
    row_L[: len(value)] = value[:length]
  return rows_FxL
