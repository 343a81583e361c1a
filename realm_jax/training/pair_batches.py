"""Batches of mined pairs: rows of the corpus are replaced by passages."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.batches import Features
from realm_jax.data.prepared_examples import PreparedBatches
from realm_jax.retrieval.joint_inputs import passage_tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairBatches(Iterator[Features]):
  """Draws one positive passage of each query, and some hard negatives.

  Attributes:
    rows: Batches of `query`, `right` and `wrong`, rows of the corpus or below 0 for none.
    passage_length: Maximum wordpieces of a passage.
    seed: Seeds the draws, together with the position in the data.
  """

  rows: PreparedBatches
  store: PassageStore
  passage_length: int
  hard_negatives: int
  seed: Sequence[int]

  def __next__(self) -> Features:
    random = np.random.default_rng([*self.seed, self.rows.examples_read])
    rows = next(self.rows)
    if rows["wrong"].shape[1] < self.hard_negatives:
      raise ValueError(
        f"hard_negatives={self.hard_negatives}, but {rows['wrong'].shape[1]} were prepared; lower "
        "it, or prepare the pairs again with a larger --num_hard_negatives"
      )
    drawn = [_drawn(rows["right"], 1, random), _drawn(rows["wrong"], self.hard_negatives, random)]
    ids_BxK = np.concatenate(drawn, axis=1)
    passage = passage_tokens(self.store, ids_BxK, length=self.passage_length)
    return {
      "query": rows["query"],
      "passage": np.where(ids_BxK[..., None] >= 0, passage.ids, 0),
      "passage_segments": passage.segments,
      "passage_uid": self._uids(ids_BxK),
      "also_right": self._uids(rows["right"]),
    }

  def position(self) -> Features:
    return self.rows.position()

  def restore(self, position: Features) -> None:
    self.rows.restore(position)

  def _uids(self, ids: np.ndarray) -> np.ndarray:
    return np.where(ids >= 0, self.store.uids[ids], 0)


def _drawn(ids_BxO: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
  """Returns `count` of each row's ids in random order; missing ones come last."""
  order_BxO = np.argsort(random.random(ids_BxO.shape) + (ids_BxO < 0), axis=1)
  return np.take_along_axis(ids_BxO, order_BxO[:, :count], axis=1)
