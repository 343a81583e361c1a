"""The arrays that rooms hand to each other.

Axis letters, used as suffixes of arrays with two or more axes:
B queries, K passages per query (the null passage included), L query length, P passage length,
T joint length, M masked positions, D model width, H heads, E retrieval embedding, V vocabulary,
N passages of the corpus.
"""

import typing
from typing import Any

import flax.struct
import numpy as np

Array = Any  # np.ndarray on the host, jax.Array on a device.

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
NULL_PASSAGE_ID = -1  # the empty passage that every query is also read with
MISSING_PASSAGE_ID = -2  # fills up to K where the corpus has too few passages


@flax.struct.dataclass
class Tokens:
  """Token sequences ready for an encoder; all three arrays have one shape `[..., length]`.

  Attributes:
    ids: int32 wordpiece ids, 0 where padded.
    mask: bool, False where padded.
    segments: int32 segment (token type) ids.
  """

  ids: Array
  mask: Array
  segments: Array

  @property
  def shape(self) -> tuple[int, ...]:
    return self.ids.shape

  def reshape(self, *shape: int) -> "Tokens":
    return Tokens(self.ids.reshape(shape), self.mask.reshape(shape), self.segments.reshape(shape))


@flax.struct.dataclass
class MaskedQueries:
  """A batch of queries with the answer masked out; what a pre-training task yields.

  Attributes:
    query: `Tokens` `[B, L]`, `[CLS] x [SEP]`.
    mlm_positions_BxM: int32 positions of masks in the query (the same in the joint input).
    mlm_targets_BxM: int32 original ids there.
    mlm_weights_BxM: float32, 1 for a real mask, 0 for padding.
    source_uid_B: int64 uid of the passage the query was cut from (the trivial passage); 0 if none.
  """

  query: Tokens
  mlm_positions_BxM: Array
  mlm_targets_BxM: Array
  mlm_weights_BxM: Array
  source_uid_B: Array


@flax.struct.dataclass
class RetrievedBatch:
  """Masked queries with the K passages to read; slot 0 of K is the null passage.

  Attributes:
    queries: the `MaskedQueries`, without change.
    passage: `Tokens` `[B, K, P]`, `[CLS] title [SEP] body [SEP]`, scored by the dual encoder.
    joint: `Tokens` `[B, K, T]`, `[CLS] x [SEP] body [SEP]`, read by the knowledge-augmented
      encoder.
    valid_BxK: bool, False where a corpus smaller than K left a slot empty.
    passage_ids_BxK: int32 rows of the passage store, NULL_PASSAGE_ID or MISSING_PASSAGE_ID.
    stale_scores_BxK: float32 scores of the index that chose the passages; 0 for the null passage.
  """

  queries: MaskedQueries
  passage: Tokens
  joint: Tokens
  valid_BxK: Array
  passage_ids_BxK: Array
  stale_scores_BxK: Array


class SearchResults(typing.NamedTuple):
  """Best first: `ids_BxK` int32 rows, -2 past the corpus; `scores_BxK` float32, -inf there."""

  ids_BxK: np.ndarray
  scores_BxK: np.ndarray
