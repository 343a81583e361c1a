"""The arrays that rooms exchange, and the glossary of axis letters.

The name of an array with two or more axes ends in their letters, such as `scores_BxK`. Each letter
has one meaning throughout the package:

  A  alternative words at a masked position
  B  batch: queries, questions, or any other examples
  C  candidate answers
  D  model width
  E  width of a retrieval embedding
  F  flat list of sequences or rows, such as the B × K joint inputs of an encoder call
  G  width of one attention head
  H  attention heads
  I  sources of candidate answers: each passage alone, and all together
  J  passages added or changed by edits
  K  passages read per query, including the null passage
  L  query length, or the length of any other sequence
  M  masked positions
  N  passages of the corpus
  O  further positives of a query
  P  passage length
  Q  positions that a layer computes, of L
  R  passages of a beam, of which the first K are read
  S  spans: of wordpieces, numbered through all passages, or of one passage
  T  joint length, of query and passage
  U  hidden units of the span scorer
  V  vocabulary
  W  widths of spans
  X  sentences of a passage
  Z  segments
"""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

import flax.serialization
import flax.struct
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.devices import backend

backend.prepare()

Buckets = tuple[tuple[int, int], ...]  # of a device: rows and length of each, shortest first
Lengths = tuple[int, ...]  # quantiles of a corpus's passages, from the shortest to the longest
Array = Any  # np.ndarray on the host, jax.Array on a device.

NULL_PASSAGE_ID = -1  # the empty passage that every query is also read with
NULL_PASSAGE_LENGTH = 3  # [CLS] [SEP] [SEP]
MISSING_PASSAGE_ID = -2  # pads to K if the corpus has too few passages


@flax.struct.dataclass
class Tokens:
  """Token sequences for an encoder; the first three arrays have the shape `[..., length]`.

  Attributes:
    ids: int32 wordpiece ids, 0 for padding.
    mask: bool, False for padding.
    segments: int32 segment (token type) ids.
    noise: uint32 `[..., 2]`, random words of each sequence that its dropout is drawn from; None
      draws by its place in the array.
  """

  ids: Array
  mask: Array
  segments: Array
  noise: Array | None = None

  @property
  def shape(self) -> tuple[int, ...]:
    return self.ids.shape

  def __getitem__(self, index: Any) -> "Tokens":
    of_rows = index[: self.ids.ndim - 1] if isinstance(index, tuple) else index
    noise = None if self.noise is None else self.noise[of_rows]
    return Tokens(self.ids[index], self.mask[index], self.segments[index], noise)

  def reshape(self, *shape: int) -> "Tokens":
    noise = None if self.noise is None else self.noise.reshape(*shape[:-1], 2)
    ids, mask, segments = (leaf.reshape(shape) for leaf in (self.ids, self.mask, self.segments))
    return Tokens(ids, mask, segments, noise)


@flax.struct.dataclass
class MaskedQueries:
  """A batch of queries with the answer masked out, as yielded by a pre-training task.

  Attributes:
    query: `Tokens` `[B, L]`, `[CLS] x [SEP]`.
    mlm_positions_BxM: int32 positions of masks in the query (the same in the joint input).
    mlm_targets_BxM: int32 original ids at these positions.
    mlm_weights_BxM: float32, 1 for a mask, 0 for padding.
    source_uid_B: int64 uid of the passage the query was cut from (the trivial passage); 0 if none.
    query_buckets: Buckets in which `query` is computed; empty for full length.
  """

  query: Tokens
  mlm_positions_BxM: Array
  mlm_targets_BxM: Array
  mlm_weights_BxM: Array
  source_uid_B: Array
  query_buckets: Buckets = flax.struct.field(pytree_node=False, default=())

  @property
  def unmasked(self) -> Tokens:
    """The queries with their targets put back, in numpy; masks that are not predicted remain."""
    ids_BxL = np.array(self.query.ids)
    rows, slots = np.nonzero(np.asarray(self.mlm_weights_BxM) > 0)
    positions = np.asarray(self.mlm_positions_BxM)[rows, slots]
    ids_BxL[rows, positions] = np.asarray(self.mlm_targets_BxM)[rows, slots]
    return Tokens(ids_BxL, self.query.mask, self.query.segments)


@flax.struct.dataclass
class RetrievedBatch:
  """Masked queries with the K passages to read; slot 0 of K is the null passage.

  Attributes:
    queries: The `MaskedQueries`, unchanged.
    passage: `Tokens` `[B, K, P]`, `[CLS] title [SEP] body [SEP]`, scored by the dual encoder.
    joint: `Tokens` `[B, K, T]`, `[CLS] x [SEP] body [SEP]`, read by the knowledge-augmented
      encoder.
    valid_BxK: bool, False for slots that are empty because the corpus has too few passages.
    passage_ids_BxK: int32 rows of the passage store, NULL_PASSAGE_ID or MISSING_PASSAGE_ID.
    stale_scores_BxK: float32 scores from the index that chose the passages; 0 for the null passage,
      -inf for passages that only the posterior proposed.
    passage_buckets: Buckets in which `passage` without slot 0 is computed; empty for full length.
    joint_buckets: Buckets in which `joint` is computed; empty for full length.
    pairs: Pairs of queries and passages for the same step, as `Contrastive` takes them, or None.
  """

  queries: MaskedQueries
  passage: Tokens
  joint: Tokens
  valid_BxK: Array
  passage_ids_BxK: Array
  stale_scores_BxK: Array
  passage_buckets: Buckets = flax.struct.field(pytree_node=False, default=())
  joint_buckets: Buckets = flax.struct.field(pytree_node=False, default=())
  pairs: Any = None


@flax.struct.dataclass
class Pairs:
  """Queries and their passages.

  Attributes:
    query: `Tokens` `[B, L]`.
    passage: `Tokens` `[B, P]`.
    uid_B: Unique ids of the passages; 0 if unknown.
    query_buckets: Buckets in which `query` is computed; empty for full length.
    passage_buckets: Buckets in which `passage` is computed; empty for full length.
  """

  query: Tokens
  passage: Tokens
  uid_B: Array
  query_buckets: Buckets = flax.struct.field(pytree_node=False, default=())
  passage_buckets: Buckets = flax.struct.field(pytree_node=False, default=())


@flax.struct.dataclass
class Questions:
  """A batch of questions.

  Attributes:
    query: `Tokens` `[B, L]`, `[CLS] x [SEP]`.
    index_B: int32 position in the question set.
    weights_B: float32, 1 for a real question, 0 for padding.
  """

  query: Tokens
  index_B: Array
  weights_B: Array


@flax.struct.dataclass
class RetrievedQuestions:
  """Questions with their beams of passages, best first; the first K passages are read.

  Attributes:
    query: `Tokens` `[B, L]`, `[CLS] x [SEP]`.
    weights_B: float32, 1 for a question, 0 for padding.
    question_index_B: int32 position in the question set.
    passage_ids_BxR: int32 rows of the passage store, or MISSING_PASSAGE_ID.
    embeddings_BxRxE: Embeddings of the beam, from the index.
    has_answer_BxR: bool, whether the passage contains an answer.
    joint: `Tokens` `[B, K, T]`, `[CLS] x [SEP] body [SEP]`, read by the span reader.
    gold_BxKxTxW: bool, True where the span of the wordpieces t to t + w is an answer.
    passage: `Tokens` `[B, K, P]` to embed the K passages afresh; None with a frozen index.
    passage_buckets: Buckets in which `passage` is computed; empty for full length.
    joint_buckets: Buckets in which `joint` is computed; empty for full length.
  """

  query: Tokens
  weights_B: Array
  question_index_B: Array
  passage_ids_BxR: Array
  embeddings_BxRxE: Array
  has_answer_BxR: Array
  joint: Tokens
  gold_BxKxTxW: Array
  passage: Tokens | None = None
  passage_buckets: Buckets = flax.struct.field(pytree_node=False, default=())
  joint_buckets: Buckets = flax.struct.field(pytree_node=False, default=())

  @property
  def valid_BxR(self) -> Array:
    """False for slots that are empty because the corpus has too few passages."""
    return self.passage_ids_BxR >= 0


@flax.struct.dataclass
class Mean:
  """A mean as a ratio of two sums, so that parts of a batch add up to the whole.

  Attributes:
    total: float32 sum of the weighted values.
    count: float32 sum of the weights.
  """

  total: Array
  count: Array

  @classmethod
  def of(cls, values: Array, weights: Array) -> "Mean":
    """Returns the mean of values with weights of the same shape."""
    return cls(jnp.sum(values * weights), jnp.sum(weights))

  @property
  def value(self) -> jax.Array:
    """The mean; 0 if the weights sum to 0."""
    return self.total / jnp.where(self.count > 0, self.count, 1.0)


class SearchResults(typing.NamedTuple):
  """int32 rows `ids_BxK` and float32 `scores_BxK`, best first; -2 and -inf fill empty slots."""

  ids_BxK: np.ndarray
  scores_BxK: np.ndarray


_PARTS = {"queries": MaskedQueries, "query": Tokens, "passage": Tokens, "joint": Tokens}


def named_arrays(batch) -> dict[str, Array]:
  """Returns the arrays of a batch by their paths, such as `queries.query.ids`."""
  nested = flax.serialization.to_state_dict(batch)
  flat = flax.traverse_util.flatten_dict(nested, sep=".")
  return {name: array for name, array in flat.items() if array is not None}


def batch_of(kind: type, arrays: Mapping[str, Array], *, prefix: str = ""):
  """Makes a batch from its named arrays below a prefix; the inverse of `named_arrays`."""
  values = {}
  for field in dataclasses.fields(kind):
    path = f"{prefix}{field.name}"
    if field.name not in _PARTS:
      if path in arrays or field.default is dataclasses.MISSING:
        values[field.name] = arrays[path]
    elif any(name.startswith(f"{path}.") for name in arrays):
      values[field.name] = batch_of(_PARTS[field.name], arrays, prefix=f"{path}.")
  return kind(**values)
