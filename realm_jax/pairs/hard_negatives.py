"""Hard negatives of contrastive training from an index that follows it (Xiong et al. 2021)."""

import dataclasses
from typing import Any

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.batches import Features, tokens
from realm_jax.datatypes import Array
from realm_jax.index.searcher import Searcher
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.retrieval.joint_inputs import passage_tokens
from realm_jax.retrieval.passage_finder import PassageFinder


@dataclasses.dataclass(eq=False, kw_only=True)
class HardNegatives(PassageFinder):
  """Replaces the negatives of mined pairs with the best passages that are not positives.

  Attributes:
    searcher: Searches an index generation, whose rows are those of the corpus.
  """

  searcher: Searcher
  store: PassageStore

  def use(self, loaded: LoadedGeneration) -> None:
    self.searcher = loaded.searcher

  def begin(self, params, queries: Features) -> tuple[Features, Array]:
    return queries, self.encode_query(params, tokens(queries["query"]))

  def search(
    self, queries_BxE: np.ndarray, queries: Features
  ) -> tuple[np.ndarray, dict[str, float]]:
    """Returns the rows `[B, K-1]` of the negatives, -1 where there is none."""
    right_BxO = np.concatenate([queries["passage_uid"][:, :1], queries["also_right"]], axis=1)
    count = queries["passage"].shape[1] - 1
    ids_BxR = self.searcher.search(queries_BxE, count + right_BxO.shape[1]).ids_BxK
    uids_BxR = self.store.uids[np.maximum(ids_BxR, 0)]
    right_BxR = (ids_BxR >= 0) & (uids_BxR[:, :, None] == right_BxO[:, None, :]).any(axis=2)
    ids_BxR = np.where(right_BxR, -1, ids_BxR)
    wrong_first_BxR = np.argsort(ids_BxR < 0, axis=1, kind="stable")
    ids_BxK = np.take_along_axis(ids_BxR, wrong_first_BxR[:, :count], axis=1)
    return ids_BxK, {"retrieval/positives_found": float(right_BxR.any(axis=1).mean())}

  def gather(self, queries: Features, passages: np.ndarray) -> Features:
    """Returns the pairs with the negatives; where there is none, the mined one stays."""
    ids_BxK = passages
    found_BxK = ids_BxK >= 0
    length = queries["passage"].shape[-1]
    texts = passage_tokens(self.store, np.maximum(ids_BxK, 0), length=length)
    batch = {**queries, "passage_ids": ids_BxK.astype(np.int32)}
    for name, of_found in (
      ("passage", texts.ids),
      ("passage_segments", texts.segments),
      ("passage_uid", self.store.uids[np.maximum(ids_BxK, 0)]),
    ):
      found = found_BxK.reshape(found_BxK.shape + (1,) * (of_found.ndim - 2))
      values = np.where(found, of_found, queries[name][:, 1:])
      batch[name] = np.concatenate([queries[name][:, :1], values], axis=1)
    return batch

  def in_flight(self, batch: Features) -> dict[str, Any]:
    return dict(batch)

  def resume(self, in_flight: dict[str, Any]) -> Features:
    return {name: np.asarray(value) for name, value in in_flight.items()}
