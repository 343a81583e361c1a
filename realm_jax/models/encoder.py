"""The interface of encoders: queries and passages to vectors with inner products as scores.

An encoder is a frozen dataclass, its configuration, and the Flax module that it makes. Trainings,
index builder and answerers know only these two and the jitted programs of them, which they share;
`dual_encoder.py` implements them with BERT.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.devices import datatypes, partitioning
from realm_jax.foundations import choices
from realm_jax.models.bert import BertConfig, TypedModule
from realm_jax.models.lengths import in_buckets
from realm_jax.text.wordpieces import WordPieces

# The fastest of 576 to 9,216 with a BERT of width 384 on cores with 2 MiB of cache each.
_CACHED_WORDPIECES = 1152

Side = Literal["query", "passage"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig(choices.Checked, abc.ABC):
  """Settings of an encoder; a checkpoint keeps them, with the name of their class.

  Attributes:
    temperature: Divides the scores of retrieved passages; 1 as published. A higher temperature
      gives more passages a share of the prediction and the gradient.
  """

  temperature: choices.Positive = 1.0
  # The class of a description that names none.
  unnamed: ClassVar[str] = "realm_jax.models.dual_encoder.DualEncoderConfig"

  @abc.abstractmethod
  def make(self) -> "Encoder":
    """Returns the module that encodes."""

  @property
  def embedding_size(self) -> int:
    """Width E of the embeddings."""
    return _shapes(self, "passage")[0].shape[-1]

  @property
  def unit_length(self) -> bool:
    """Whether embeddings have length 1, so that scores lie between -1 and 1."""
    return False

  @property
  def reading_bert(self) -> tuple[str, BertConfig] | None:
    """The BERT that reads each text, and its path in the parameters; None if there is none."""
    return None

  def check(self, vocabulary: WordPieces, *, name: str = "dual_encoder", **lengths: int) -> None:
    """Checks that a vocabulary and lengths of texts, by name, fit the encoder."""
    if vocabulary.vocab_size > (size := getattr(self, "vocab_size", math.inf)):
      raise ValueError(
        f"{name} has vectors for {size} of {vocabulary.vocab_size} wordpieces; set "
        f"vocab_size={vocabulary.vocab_size}"
      )
    if self.reading_bert is not None:
      self.reading_bert[1].check(vocabulary.vocab_size, name=name, **lengths)

  def separated(self) -> tuple["EncoderConfig", Mapping[str, str]]:
    """Returns an encoder that embeds queries with other parameters than passages.

    Fine-tuning then trains the query's alone, and an index stays valid.

    Returns:
      The encoder, and for each of its parts the part of this one that it starts from.
    """
    parts = self.parts("query") | self.parts("passage")
    if shared := self.parts("query") & self.parts("passage"):
      raise ValueError(
        f"{type(self).__name__} embeds queries and passages with the same {sorted(shared)}, so "
        "passages cannot stay as they are; use --passage_encoder=trained"
      )
    return self, {part: part for part in sorted(parts)}

  def parts(self, of: Side) -> set[str]:
    """Returns the names of the parts of the parameters that queries or passages need."""
    return set(_shapes(self, of)[1])

  def params_of(self, of: Side, params: Mapping) -> dict:
    """Returns the parameters, of those of the encoder, that queries or passages need."""
    return _restricted(params, _shapes(self, of)[1])


class Encoder(TypedModule):
  """Embeds queries and passages; a subclass says how."""

  config: EncoderConfig

  def encode_query(self, tokens: datatypes.Tokens, *, deterministic: bool) -> jax.Array:
    """Returns float32 embeddings `[F, E]` of the queries `Tokens` `[F, L]`."""
    raise NotImplementedError

  def encode_passage(self, tokens: datatypes.Tokens, *, deterministic: bool) -> jax.Array:
    """Returns float32 embeddings `[F, E]` of the passages `Tokens` `[F, P]`."""
    raise NotImplementedError

  def encode_pairs(
    self, pairs: datatypes.Pairs, *, deterministic: bool
  ) -> tuple[jax.Array, jax.Array]:
    """Returns the float32 embeddings `[B, E]` of queries, and those of their passages."""
    of_query = functools.partial(self.encode_query, deterministic=deterministic)
    of_passage = functools.partial(self.encode_passage, deterministic=deterministic)
    return (
      in_buckets(of_query, pairs.query, buckets=pairs.query_buckets),
      in_buckets(of_passage, pairs.passage, buckets=pairs.passage_buckets),
    )

  def __call__(
    self,
    query: datatypes.Tokens,
    passage: datatypes.Tokens,
    *,
    deterministic: bool,
    buckets: datatypes.Buckets = (),
  ) -> jax.Array:
    """Returns float32 `scores_BxK` of queries `[B, L]` with their passages `[B, K, P]`.

    Args:
      passage: Slot 0 holds the null passage, which is embedded only once.
      buckets: Groups in which the other passages are embedded; see `in_buckets`.
    """
    num_queries, num_passages, passage_length = passage.shape
    embed = functools.partial(self.encode_passage, deterministic=deterministic)
    null_1xE = encode_null_passage(self, passage)
    others_FxP = passage[:, 1:].reshape(num_queries * (num_passages - 1), passage_length)
    others_FxE = in_buckets(embed, others_FxP, buckets=buckets)
    size = null_1xE.shape[-1]
    passage_BxKxE = jnp.concatenate(
      [
        jnp.broadcast_to(null_1xE, (num_queries, 1, size)),
        others_FxE.reshape(num_queries, num_passages - 1, size),
      ],
      axis=1,
    )
    return scores(self.config, self.encode_query(query, deterministic=deterministic), passage_BxKxE)


def encode_null_passage(encoder: Encoder, passage: datatypes.Tokens) -> jax.Array:
  """Returns the float32 embedding `[1, E]` of slot 0 of passages `[B, K, P]`."""
  # No dropout: all queries would share its noise.
  return encoder.encode_passage(passage[:1, 0, : datatypes.NULL_PASSAGE_LENGTH], deterministic=True)


def scores(config: EncoderConfig, query_BxE: jax.Array, passage_BxKxE: jax.Array) -> jax.Array:
  """Returns `scores_BxK`, the inner products of embeddings divided by the temperature."""
  return jnp.einsum("BE,BKE->BK", query_BxE, passage_BxKxE) / config.temperature


def example_tokens(*shape: int) -> datatypes.Tokens:
  """Returns tokens for initializing parameters."""
  ids = np.ones(shape, np.int32)
  return datatypes.Tokens(ids=ids, mask=ids > 0, segments=np.zeros_like(ids))


@functools.cache
def _shapes(config: EncoderConfig, of: Side) -> tuple[jax.ShapeDtypeStruct, dict[str, Any]]:
  """Returns the shapes of an embedding `[1, E]` and of the parameters that it depends on."""

  def init():
    tokens, method = example_tokens(1, 8), f"encode_{of}"
    key = jax.random.key(0)
    return config.make().init_with_output(key, tokens, deterministic=True, method=method)

  embedding_1xE, variables = nn.unbox(jax.eval_shape(init))
  return embedding_1xE, variables.get("params", {})


def _restricted(params: Mapping, like: Mapping) -> dict:
  return {
    name: _restricted(params[name], inner) if isinstance(inner, Mapping) else params[name]
    for name, inner in like.items()
  }


@functools.cache
def query_encoder_program(
  config: EncoderConfig, *, sharding: jax.sharding.NamedSharding | None = None
) -> Callable:
  """Returns the jitted `(params, Tokens [B, L]) -> [B, E]` of an encoder's parameters."""
  module = config.make()

  def encode(params, tokens):
    return module.apply({"params": params}, tokens, deterministic=True, method="encode_query")

  if sharding is not None:
    encode = partitioning.on_mesh(sharding.mesh, encode)
  return jax.jit(encode, out_shardings=sharding)


@functools.cache
def passage_encoder_program(
  config: EncoderConfig, mesh: jax.sharding.Mesh, *, of: Side = "passage"
) -> Callable:
  """Returns the jitted `(params, Tokens [R, P]) -> [R, E]` on a mesh, of many passages or queries.

  The parameters need not include those of the other side.
  """
  module = config.make()

  def encode(params, tokens):
    return module.apply({"params": params}, tokens, deterministic=True, method=f"encode_{of}")

  if _is_cpu(mesh):
    # Small groups keep activations in the CPU cache, which is faster than all rows at once.
    return jax.jit(functools.partial(_a_few_at_a_time, encode))
  return jax.jit(partitioning.on_mesh(mesh, encode))


def _is_cpu(mesh: jax.sharding.Mesh) -> bool:
  return mesh.size == 1 and mesh.devices.item().platform == "cpu"


def num_groups(mesh: jax.sharding.Mesh, *, num_rows: int, length: int) -> int:
  """Returns in how many groups, one after another, `passage_encoder_program` encodes rows."""
  return -(-num_rows // max(1, _CACHED_WORDPIECES // length)) if _is_cpu(mesh) else 1


def _a_few_at_a_time(encode: Callable, params, tokens: datatypes.Tokens) -> jax.Array:
  num_rows, length = tokens.shape
  num_groups = -(-num_rows // max(1, _CACHED_WORDPIECES // length))
  rows = -(-num_rows // num_groups)

  def grouped(leaf):
    padded = jnp.pad(leaf, ((0, num_groups * rows - num_rows), (0, 0)))
    return padded.reshape(num_groups, rows, length)

  encoded_GxRxE = jax.lax.map(functools.partial(encode, params), jax.tree.map(grouped, tokens))
  return encoded_GxRxE.reshape(num_groups * rows, -1)[:num_rows]


def query_encoder(
  config: EncoderConfig,
  put_on_devices: Callable,
  *,
  sharding: jax.sharding.NamedSharding | None = None,
) -> Callable:
  """Returns `(params, Tokens [B, L]) -> [B, E]`, which enqueues the work without waiting.

  Args:
    config: The encoder; its parameters are `params["dual_encoder"]`.
    put_on_devices: Puts numpy queries on the devices.
    sharding: Sharding of the embeddings; None lets XLA choose.
  """
  encode = query_encoder_program(config, sharding=sharding)
  return lambda params, tokens: encode(params["dual_encoder"], put_on_devices(tokens))
