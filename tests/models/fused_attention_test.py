"""The kernel, emulated, against attention as a textbook has it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.devices import partitioning
from realm_jax.models import fused_attention


def drawn(*, sequences=4, length=7, heads=2, size=4, dtype=np.float32):
  """Returns query, key, value, their biases, a mask with one padded sequence, and words."""
  random = np.random.default_rng(0)
  factors = random.normal(size=(3, sequences, length, heads, size)).astype(dtype)
  biases = list(random.normal(size=(3, heads, size)).astype(np.float32))
  mask_FxL = np.arange(length) < np.linspace(0, length, sequences).astype(int)[:, None]
  return *factors, biases, mask_FxL, random.integers(0, 2**32, (sequences, heads, 2), np.uint32)


def fused(query_FxLxHxG, key_FxLxHxG, value_FxLxHxG, biases, mask_FxL, words_FxHx2, keep):
  num_sequences, length, num_heads, head_size = query_FxLxHxG.shape
  factors = query_FxLxHxG, key_FxLxHxG, value_FxLxHxG
  packed = fused_attention.packed(*(x.reshape(-1, num_heads, head_size) for x in factors))
  packed = packed.reshape(num_sequences, length, -1).astype(jnp.float32)
  bias = fused_attention.packed(*(bias_HxG[None] for bias_HxG in biases))
  dtype = query_FxLxHxG.dtype.name
  context = fused_attention.fused_attention(packed, bias, mask_FxL, words_FxHx2, keep, dtype)
  return context.reshape(query_FxLxHxG.shape)


def textbook(query_FxLxHxG, key_FxLxHxG, value_FxLxHxG, biases, mask_FxL, words_FxHx2, keep):
  query_FxLxHxG, key_FxLxHxG, value_FxLxHxG = (
    x + bias_HxG[None, None]
    for x, bias_HxG in zip((query_FxLxHxG, key_FxLxHxG, value_FxLxHxG), biases, strict=True)
  )
  logits_FxHxLxL = jnp.einsum("FQHG,FLHG->FHQL", query_FxLxHxG, key_FxLxHxG)
  logits_FxHxLxL /= query_FxLxHxG.shape[-1] ** 0.5
  probs_FxHxLxL = jax.nn.softmax(jnp.where(mask_FxL[:, None, None], logits_FxHxLxL, -1e30))
  probs_FxHxLxL *= mask_FxL[:, None, None]
  kept_FxHxLxL = fused_attention.kept(words_FxHx2, length=mask_FxL.shape[1], keep=keep)
  return jnp.einsum("FHQL,FLHG->FQHG", probs_FxHxLxL * kept_FxHxLxL / keep, value_FxLxHxG)


def value_and_gradients(attention, inputs, keep):
  *factors, mask_FxL, words_FxHx2 = inputs

  def loss(*factors):
    context = attention(*factors, mask_FxL, words_FxHx2, keep)
    return jnp.sum(jnp.sin(context.astype(jnp.float32))), context

  gradients, context = jax.grad(loss, argnums=(0, 1, 2, 3), has_aux=True)(*factors)
  return context, *gradients


def program(attention, keep):
  return functools.partial(value_and_gradients, attention, keep=keep)


@pytest.mark.parametrize(
  ("heads", "size", "keep"),
  [(2, 4, 1.0), (4, 64, 0.8), (3, 64, 0.8), (2, 128, 0.8)],
  ids=["one group", "two groups", "no whole group", "a head a group"],
)
def test_is_attention_in_value_and_gradient(heads, size, keep, float_tolerance):
  inputs = drawn(heads=heads, size=size)
  # Three products in a row, each a sum over a head's size or the length, of values below 10.
  atol = float_tolerance(depth=3 * max(inputs[0].shape[-1], 7), scale=10)
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, atol=atol),
    jax.jit(program(fused, keep))(inputs),
    jax.jit(program(textbook, keep))(inputs),
  )


def test_bfloat16_rounds_factors_and_probabilities():
  inputs = drawn(dtype=jnp.bfloat16)
  wide = [np.asarray(factor, np.float32) for factor in inputs[:3]]
  *found, of_biases = jax.jit(program(fused, 1.0))(inputs)
  *expected, _ = jax.jit(program(textbook, 1.0))((*wide, *inputs[3:]))
  assert {leaf.dtype for leaf in of_biases} == {jnp.dtype(jnp.float32)}
  assert {leaf.dtype for leaf in found} == {jnp.dtype(jnp.bfloat16)}
  for narrow, value in zip(found, expected, strict=True):
    # A product of two rounded factors summed over seven positions, and a rounded result.
    atol = 7 * 2 * 2**-8 * np.abs(value).max()
    np.testing.assert_allclose(np.asarray(narrow, np.float32), value, atol=atol)


@pytest.mark.parametrize("model", [1, 2, 4])
def test_each_device_computes_its_own_sequences_and_heads(model, float_tolerance):
  """Also where the mesh does not divide the two heads."""
  mesh = partitioning.make_mesh(model=model)
  inputs = drawn(sequences=8)
  batch, whole = partitioning.batch_sharding(mesh), partitioning.sharding(mesh)
  placed = jax.device_put(inputs, (batch, batch, batch, whole, batch, batch))
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, atol=float_tolerance(depth=21, scale=10)),
    jax.jit(partitioning.on_mesh(mesh, program(fused, 0.8)))(placed),
    jax.jit(program(fused, 0.8))(inputs),
  )
