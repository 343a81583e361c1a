"""BERT as published (Devlin et al. 2018): post-layer-norm, learned positions and segments.

Parameters are float32; activations have `BertConfig.compute_dtype`. Softmax and layer norm are
computed in at least float32.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING, Annotated, Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from absl import logging

from realm_jax.devices import datatypes
from realm_jax.foundations import choices
from realm_jax.models import attention_kernels, dropout, fused_attention
from realm_jax.models.products import activated_product, fastest_dtype, product, product_transposed

_ACTIVATIONS = {
  "gelu_erf": functools.partial(jax.nn.gelu, approximate=False),
  "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
}


class TypedModule(nn.Module):
  """A module that is applied without mutable variables.

  Flax's own annotations also allow frozen dictionaries, pairs with mutated variables and boxed
  parameters, which every caller would have to rule out.
  """

  if TYPE_CHECKING:

    def init(self, *args: Any, **kwargs: Any) -> dict[str, Any]: ...

    def apply(self, *args: Any, **kwargs: Any) -> Any: ...

    def param(self, *args: Any, **kwargs: Any) -> jax.Array: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig(choices.Checked):
  """Size and numerics of a BERT; the defaults are BERT-base, uncased.

  Attributes:
    vocab_size: Number of wordpieces, including special ones.
    hidden_size: Width D of every layer; a multiple of `num_heads`.
    num_layers: Number of layers.
    num_heads: Number of attention heads H.
    mlp_size: Width of the feed-forward layer.
    max_length: Number of positions with an embedding.
    num_segments: Number of segment (token type) ids.
    dropout_rate: Dropout rate of the embeddings and of both residual branches.
    attention_dropout_rate: Dropout rate of the attention probabilities.
    layer_norm_epsilon: Added to the variance.
    activation: "gelu_tanh" (the TensorFlow release) or "gelu_erf".
    dtype: Dtype of the activations: "float32", "bfloat16", "float64" (for comparisons), or "auto",
      whichever of the first two is faster on the machine that opens the model.
    attention: "plain", "fused" (one kernel: ours on TPUs, which draws other dropout and which CPUs
      emulate slowly, or cuDNN's on GPUs, which has none, so `attention_dropout_rate` must be 0), or
      "auto", fused where a program is compiled for a mesh of devices with a kernel for it.
    remat: Keeps only each layer's input for the backward pass and recomputes the rest.
    initializer_range: Standard deviation of the initializer of kernels and embeddings.
    copies: For a reader, whether it can also copy words of a passage, which a small one then learns
      in minutes; it is then no BERT that other programs know. See `Copying`.
  """

  vocab_size: choices.Count = 30522
  hidden_size: choices.Count = 768
  num_layers: Annotated[int, choices.Bounds(least=1, most=1000)] = 12
  num_heads: choices.Count = 12
  mlp_size: choices.Count = 3072
  max_length: choices.Count = 512
  num_segments: Annotated[choices.Count, choices.IMPORTED] = 2
  dropout_rate: choices.Rate = 0.1
  attention_dropout_rate: choices.Rate = 0.1
  layer_norm_epsilon: Annotated[choices.PositiveOrZero, choices.IMPORTED] = 1e-12
  activation: Annotated[Literal["gelu_erf", "gelu_tanh"], choices.IMPORTED] = "gelu_tanh"
  dtype: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
  attention: attention_kernels.Setting = "auto"
  remat: bool = False
  initializer_range: choices.PositiveOrZero = 0.02
  copies: bool = False

  def __post_init__(self):
    super().__post_init__()
    if self.hidden_size % self.num_heads:
      raise ValueError(
        f"hidden_size={self.hidden_size} is not a multiple of num_heads={self.num_heads}; "
        "each head takes an equal share of the width"
      )
    if self.dtype == "float64" and jax.dtypes.canonicalize_dtype("float64") != "float64":
      raise ValueError("dtype='float64' needs JAX_ENABLE_X64=1; without it JAX computes in float32")

  @property
  def compute_dtype(self) -> str:
    """The dtype of the activations on this machine."""
    return fastest_dtype() if self.dtype == "auto" else self.dtype

  def check(self, vocab_size: int, *, name: str, **lengths: int) -> None:
    """Checks that a vocabulary and the lengths by name fit, before anything is compiled."""
    if vocab_size > self.vocab_size:
      raise ValueError(
        f"the vocabulary has {vocab_size} wordpieces, but {name} has vocab_size={self.vocab_size}; "
        "raise it or use the model's own vocabulary"
      )
    if self.vocab_size > 2 * vocab_size:
      logging.warning(
        "%s has vocab_size=%d, but the vocabulary only %d wordpieces: most embeddings are never "
        "used; a new model needs no more than --vocab_size=%d",
        *(name, self.vocab_size, vocab_size, vocab_size),
      )
    for setting, length in lengths.items():
      if length > self.max_length:
        raise ValueError(
          f"{setting}={length} exceeds the {self.max_length} positions of {name}; lower it or "
          "raise max_length"
        )

  def attention_kernel(self, length: int, *, deterministic: bool) -> attention_kernels.Kernel:
    """Returns which kernel computes attention over `length` positions on this mesh."""
    return attention_kernels.choose(
      self.attention,
      length=length,
      head_size=self.hidden_size // self.num_heads,
      dtype=self.compute_dtype,
      dropout_rate=0.0 if deterministic else self.attention_dropout_rate,
    )


def wide_dtype(config: BertConfig) -> jnp.dtype:
  """Returns the dtype of softmax, layer norm, logits and embeddings: at least float32."""
  return jnp.promote_types(config.compute_dtype, jnp.float32)


def activation(config: BertConfig, inputs: jax.Array) -> jax.Array:
  """Applies the configured nonlinearity."""
  # In float32 at least: XLA on CPU rounds after every operation on narrower numbers, which takes
  # up to four times as long.
  return _ACTIVATIONS[config.activation](inputs.astype(wide_dtype(config))).astype(inputs.dtype)


class Dense(TypedModule):
  """A dense layer that maps the last dimensions of its inputs to `features`, as in BERT.

  Attributes:
    config: Provides dtype and initializer range.
    features: Output dimensions.
    axes: Logical axes of the kernel: those of the input dimensions, then those of `features`.
    activated: Applies the configured nonlinearity to the inputs first.
    wide: Leaves the sums in at least float32, as scores need it: rounded, the best ones are equal.
  """

  config: BertConfig
  features: tuple[int, ...]
  axes: tuple[str, ...]
  activated: bool = False
  wide: bool = False

  def __call__(self, inputs: jax.Array) -> jax.Array:
    leading = inputs.shape[: inputs.ndim - (len(self.axes) - len(self.features))]
    kernel, bias = self.weights(inputs.shape[len(leading) :])
    shape = kernel.size // bias.size, bias.size
    factors = inputs.reshape(-1, shape[0]), kernel.reshape(shape)
    dtype = self.config.compute_dtype
    if self.activated:
      outputs = activated_product(*factors, dtype, functools.partial(activation, self.config))
    else:
      outputs = product(*factors, dtype)
    outputs = (outputs + bias.reshape(1, -1)).reshape(*leading, *self.features)
    return outputs if self.wide else outputs.astype(dtype)

  @nn.compact
  def weights(self, input_shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Returns kernel and bias."""
    kernel = self.param(
      "kernel",
      nn.with_logical_partitioning(kernel_init(self.config), self.axes),
      (*input_shape, *self.features),
    )
    bias = self.param(
      "bias",
      nn.with_logical_partitioning(nn.initializers.zeros, self.axes[-len(self.features) :]),
      self.features,
    )
    return kernel, bias


def layer_norm(*, epsilon: float, axis: str, name: str | None = None) -> nn.LayerNorm:
  """Returns a float32 layer norm over the last dimension, the logical axis `axis`."""
  return nn.LayerNorm(
    epsilon=epsilon,
    use_fast_variance=False,
    scale_init=nn.with_logical_partitioning(nn.initializers.ones, (axis,)),
    bias_init=nn.with_logical_partitioning(nn.initializers.zeros, (axis,)),
    name=name,
  )


def kernel_init(config: BertConfig) -> nn.initializers.Initializer:
  """Returns BERT's initializer of kernels and embeddings."""
  return nn.initializers.truncated_normal(config.initializer_range)


class SelfAttention(TypedModule):
  """Multi-head attention from some positions of a sequence to all positions except padding."""

  config: BertConfig

  @nn.compact
  def __call__(self, some_FxQxD, all_FxLxD, mask_FxL, words_Fx2):
    config = self.config
    if words_Fx2 is not None:
      words_Fx2 = dropout.of_use(words_Fx2, self.path)
    head_size = config.hidden_size // config.num_heads
    heads = functools.partial(
      Dense, config, (config.num_heads, head_size), ("embed", "heads", "kv")
    )
    projections, kernel = [heads(name=name) for name in ("query", "key", "value")], "plain"
    # A kernel saves the memory of the logits, which are small for a few positions.
    if some_FxQxD is all_FxLxD:
      kernel = config.attention_kernel(mask_FxL.shape[1], deterministic=words_Fx2 is None)
    if kernel == "pallas":
      context = self._fused(projections, all_FxLxD, mask_FxL, words_Fx2)
    else:
      inputs = some_FxQxD, all_FxLxD, all_FxLxD
      query, key, value = (project(rows) for project, rows in zip(projections, inputs, strict=True))
      if kernel == "cudnn":
        context = attention_kernels.by_lengths(query, key, value, mask_FxL)
      else:
        context = self._plain(query, key, value, mask_FxL, words_Fx2)
    return Dense(config, (config.hidden_size,), ("heads", "kv", "embed"), name="output")(context)

  def _fused(self, projections, all_FxLxD, mask_FxL, words_Fx2):
    (num_sequences, length, width), num_heads = all_FxLxD.shape, self.config.num_heads
    kernels, biases = zip(*(project.weights((width,)) for project in projections), strict=True)
    dtype = self.config.compute_dtype
    packed_Fx3D = product(all_FxLxD.reshape(-1, width), fused_attention.packed(*kernels), dtype)
    bias_1x3D = fused_attention.packed(*(bias_HxG[None] for bias_HxG in biases))
    rate, words_FxHx2 = 0.0, jnp.zeros((num_sequences, num_heads, 2), jnp.uint32)
    if words_Fx2 is not None and self.config.attention_dropout_rate:
      rate = self.config.attention_dropout_rate
      words_FxHx2 = dropout.bits(words_Fx2, words_FxHx2.shape)
    packed_FxLx3D = packed_Fx3D.reshape(num_sequences, length, -1)
    context = fused_attention.fused_attention(
      packed_FxLx3D, bias_1x3D, mask_FxL, words_FxHx2, 1 - rate, dtype
    )
    return context.reshape(num_sequences, length, num_heads, -1)

  def _plain(self, query_FxQxHxG, key_FxLxHxG, value_FxLxHxG, mask_FxL, words_Fx2):
    config = self.config
    # Heads come before positions, so that each head multiplies contiguous matrices.
    query_FxHxQxG = query_FxQxHxG.swapaxes(1, 2) * query_FxQxHxG.shape[-1] ** -0.5
    key_FxHxLxG, value_FxHxLxG = key_FxLxHxG.swapaxes(1, 2), value_FxLxHxG.swapaxes(1, 2)
    # Padding gets the first token's key and no value: the largest logit is then a token's, and
    # nothing of the logits' size has to be masked or normalised.
    mask_Fx1xLx1 = mask_FxL[:, None, :, None]
    key_FxHxLxG = jnp.where(mask_Fx1xLx1, key_FxHxLxG, key_FxHxLxG[:, :, :1])
    value_FxHxLxG = jnp.where(mask_Fx1xLx1, value_FxHxLxG, 0)
    real_FxHxLx1 = jnp.broadcast_to(mask_Fx1xLx1, (*value_FxHxLxG.shape[:-1], 1))
    logits_FxHxQxL = product_transposed(query_FxHxQxG, key_FxHxLxG, config.compute_dtype)
    highest_FxHxQx1 = jax.lax.stop_gradient(logits_FxHxQxL.max(axis=-1, keepdims=True))
    weights_FxHxQxL = jnp.exp(logits_FxHxQxL - highest_FxHxQx1).astype(config.compute_dtype)
    if words_Fx2 is None or not config.attention_dropout_rate:
      # One product for both.
      value_FxHxLxG = jnp.concatenate([value_FxHxLxG, real_FxHxLx1.astype(value_FxHxLxG.dtype)], -1)
      sums = product(weights_FxHxQxL, value_FxHxLxG, config.compute_dtype)
      context_FxHxQxG, total_FxHxQx1 = sums[..., :-1], sums[..., -1:]
    else:
      total_FxHxQx1 = product(weights_FxHxQxL, real_FxHxLx1, config.compute_dtype)
      kept_FxHxQxL = dropout.dropped(weights_FxHxQxL, words_Fx2, config.attention_dropout_rate)
      context_FxHxQxG = product(kept_FxHxQxL, value_FxHxLxG, config.compute_dtype)
    # A sequence of nothing but padding has a total of 0.
    context_FxHxQxG /= jnp.where(total_FxHxQx1 > 0, total_FxHxQx1, 1)
    return context_FxHxQxG.astype(config.compute_dtype).swapaxes(1, 2)


class ResidualNorm(TypedModule):
  """Post-layer-norm residual: adds a branch with dropout, and normalises in at least float32.

  The gradient is in closed form, from the sum, its means and its deviations alone; dropout is drawn
  again. Autodiff would read the sum once more for the gradients of mean and variance, and keep
  more.

  Attributes:
    epsilon: Added to the variance.
    dropout_rate: Dropout rate of the branch.
  """

  epsilon: float
  dropout_rate: float

  @nn.compact
  def __call__(
    self, inputs: jax.Array, branch: jax.Array, words_Fx2: jax.Array | None
  ) -> jax.Array:
    """Returns an array like both, `[F, ..., D]`; without words nothing is dropped."""

    def param(name: str, init: nn.initializers.Initializer) -> jax.Array:
      of_axis = nn.with_logical_partitioning(init, ("embed",))
      return self.param(name, of_axis, inputs.shape[-1:]).reshape(*[1] * (inputs.ndim - 1), -1)

    scale, bias = param("scale", nn.initializers.ones), param("bias", nn.initializers.zeros)
    if words_Fx2 is not None:
      words_Fx2 = dropout.of_use(words_Fx2, self.path)
    return _normed_sum(self.epsilon, self.dropout_rate, (inputs, branch, scale, bias), words_Fx2)


def _normed_sum_forward(epsilon, rate, arrays, words_Fx2):
  inputs, branch, scale, bias = arrays
  total = inputs + dropout.dropped(branch, words_Fx2, rate)
  wide = total.astype(jnp.promote_types(total.dtype, jnp.float32))
  mean = wide.mean(axis=-1, keepdims=True)
  inverse = jax.lax.rsqrt(jnp.square(wide - mean).mean(axis=-1, keepdims=True) + epsilon)
  normed = (wide - mean) * (inverse * scale) + bias
  return normed.astype(total.dtype), (total, mean, inverse, scale, words_Fx2)


def _normed_sum_gradients(epsilon, rate, kept, slope):
  del epsilon
  total, mean, inverse, scale, words_Fx2 = kept

  def wide(total, slope):
    return (total.astype(mean.dtype) - mean) * inverse, slope.astype(mean.dtype)

  normed, wide_slope = wide(total, slope)
  scaled = wide_slope * scale
  along = scaled.mean(axis=-1, keepdims=True)
  across = (scaled * normed).mean(axis=-1, keepdims=True)
  of_total = (inverse * (scaled - along - normed * across)).astype(total.dtype)
  of_branch = dropout.dropped(of_total, words_Fx2, rate)
  rows = tuple(range(total.ndim - 1))
  # Computed again: on GPUs, XLA would write their product in float32 for this sum, and read it.
  normed, wide_slope = wide(
    *jax.lax.platform_dependent(
      (total, slope), cuda=jax.lax.optimization_barrier, default=lambda arrays: arrays
    )
  )
  of_scale, of_bias = (
    x.sum(rows, keepdims=True).astype(scale.dtype) for x in (wide_slope * normed, wide_slope)
  )
  return (of_total, of_branch, of_scale, of_bias), None


_normed_sum = jax.custom_vjp(
  lambda *arguments: _normed_sum_forward(*arguments)[0], nondiff_argnums=(0, 1)
)
_normed_sum.defvjp(_normed_sum_forward, _normed_sum_gradients)


class Layer(TypedModule):
  """One transformer layer; each branch is added to its input and then normalised."""

  config: BertConfig

  @nn.compact
  def __call__(self, hidden_FxLxD, mask_FxL, positions_FxQ, words_Fx2):
    config = self.config

    def added(name: str, inputs: jax.Array, branch: jax.Array) -> jax.Array:
      norm = ResidualNorm(config.layer_norm_epsilon, config.dropout_rate, name=name)
      return norm(inputs, branch, words_Fx2)

    some_FxQxD = hidden_FxLxD
    if positions_FxQ is not None:
      some_FxQxD = jnp.take_along_axis(hidden_FxLxD, positions_FxQ[..., None], axis=1)
    attention = SelfAttention(config, name="attention")
    branch = attention(some_FxQxD, hidden_FxLxD, mask_FxL, words_Fx2)
    some_FxQxD = added("attention_norm", some_FxQxD, branch)

    branch = Dense(config, (config.mlp_size,), ("embed", "mlp"), name="mlp_in")(some_FxQxD)
    output = Dense(config, (config.hidden_size,), ("mlp", "embed"), activated=True, name="mlp_out")
    return added("mlp_norm", some_FxQxD, output(branch))


def noise(module: nn.Module, tokens: datatypes.Tokens) -> jax.Array:
  """Returns the noise `[F, 2]` of sequences `[F, L]`."""
  if tokens.noise is not None:
    return tokens.noise
  return dropout.words(module.make_rng("dropout"), tokens.shape[:-1])


class BertEncoder(TypedModule):
  """Encodes tokens as contextual vectors."""

  config: BertConfig

  def setup(self):
    config = self.config
    init = kernel_init(config)
    self.word_embedding = nn.Embed(
      config.vocab_size,
      config.hidden_size,
      embedding_init=nn.with_logical_partitioning(init, ("vocab", "embed")),
    )
    self.position_embedding = self.param(
      "position_embedding",
      nn.with_logical_partitioning(init, ("position", "embed")),
      (config.max_length, config.hidden_size),
    )
    self.segment_embedding = self.param(
      "segment_embedding",
      nn.with_logical_partitioning(init, ("segment", "embed")),
      (config.num_segments, config.hidden_size),
    )
    self.embedding_norm = layer_norm(epsilon=config.layer_norm_epsilon, axis="embed")
    layer = nn.remat(Layer) if config.remat else Layer
    self.layers = [layer(config) for _ in range(config.num_layers)]

  def __call__(
    self, tokens: datatypes.Tokens, *, deterministic: bool, positions_FxQ: jax.Array | None = None
  ) -> jax.Array:
    """Returns the last layer's vectors of `Tokens` `[F, L]`, in `config.compute_dtype`.

    Args:
      tokens: Sequences of any length up to `config.max_length`.
      deterministic: Disables dropout, which otherwise draws from the tokens' noise or, if they have
        none, from the "dropout" key.
      positions_FxQ: Positions to return; the last layer computes no others.

    Returns:
      `[F, L, D]`, or `[F, Q, D]` if positions are given.
    """
    last = self.last_two(tokens, deterministic=deterministic, positions_FxQ=positions_FxQ)
    return last[1]

  def last_two(
    self, tokens: datatypes.Tokens, *, deterministic: bool, positions_FxQ: jax.Array | None = None
  ) -> tuple[jax.Array, jax.Array]:
    """Returns what the last layer reads, `[F, L, D]`, and what `__call__` returns."""
    config = self.config
    length = tokens.shape[-1]
    if length > config.max_length:
      raise ValueError(
        f"sequence length {length} > max_length={config.max_length} of this BERT; shorten the "
        "sequences or raise max_length"
      )
    hidden_FxLxD = self.embedding_norm(self.embedded(tokens)).astype(config.compute_dtype)
    words_Fx2 = None
    if not deterministic and (config.dropout_rate or config.attention_dropout_rate):
      words_Fx2 = noise(self, tokens)
      hidden_FxLxD = dropout.dropped(
        hidden_FxLxD, dropout.of_use(words_Fx2, self.path), config.dropout_rate
      )
    for layer in self.layers[:-1]:
      hidden_FxLxD = layer(hidden_FxLxD, tokens.mask, None, words_Fx2)
    last = self.layers[-1](hidden_FxLxD, tokens.mask, positions_FxQ, words_Fx2)
    return hidden_FxLxD, last

  def embedded(self, tokens: datatypes.Tokens) -> jax.Array:
    """Returns the sums `[F, L, D]` of the embeddings of words, segments and positions."""
    config = self.config
    segments_FxL = jnp.minimum(tokens.segments, config.num_segments - 1)  # RoBERTa has one
    segments_FxLxZ = jax.nn.one_hot(segments_FxL, config.num_segments, dtype=config.compute_dtype)
    # A product, because a gather from so few rows makes all tokens collide in its gradient.
    of_segments_NxD = product(
      segments_FxLxZ.reshape(-1, config.num_segments), self.segment_embedding, config.compute_dtype
    )
    # Cast as a sum: the gradients of tables, sums over all tokens, are then float32.
    return (
      self.word_embedding(tokens.ids)
      + of_segments_NxD.reshape(*tokens.shape, config.hidden_size)
      + self.position_embedding[None, : tokens.shape[-1]]
    ).astype(config.compute_dtype)

  def word_logits(self, hidden: jax.Array) -> jax.Array:
    """Returns float32 products `[..., V]` of vectors `[..., D]` and the word embeddings."""
    dtype = self.config.compute_dtype
    logits_FxV = product_transposed(
      hidden.reshape(-1, self.config.hidden_size), self.word_embedding.embedding, dtype
    )
    return logits_FxV.reshape(*hidden.shape[:-1], -1)


class BertPooler(TypedModule):
  """BERT's pooler: a dense layer and tanh on the first token's vector."""

  config: BertConfig

  @nn.compact
  def __call__(self, hidden_FxLxD: jax.Array) -> jax.Array:
    """Returns `[F, D]` in `config.compute_dtype`."""
    size = self.config.hidden_size
    dense = Dense(self.config, (size,), ("embed", "embed_out"), name="dense")
    return jnp.tanh(dense(hidden_FxLxD[:, 0]))
