import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from realm_jax.devices import partitioning
from realm_jax.models import products

M, D, N = 6, 40, 5  # rows, summed over, columns
EPSILON = {"float32": 2.0**-24, "bfloat16": 2.0**-9}  # half the distance of 1 to the next number


def draw(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


FORMS = {
  "product": (products.product, lambda a, b: a @ b, (2, M, D), (2, D, N)),
  "one column": (products.product, lambda a, b: a @ b, (2, M, D), (2, D, 1)),
  "transposed": (products.product_transposed, lambda a, b: a @ b.mT, (2, M, D), (2, N, D)),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", FORMS)
def test_sums_and_gradients_lose_no_more_than_the_factors(form, dtype):
  multiply, expected, *shapes = FORMS[form]
  factors = [draw(*shape, seed=seed) for seed, shape in enumerate(shapes)]
  slope = draw(*expected(*factors).shape, seed=2)

  def results(multiply, factors, slope):
    value, gradients = jax.vjp(multiply, *factors)
    return value, *gradients(slope.astype(value.dtype))

  found = jax.jit(lambda a, b: results(lambda a, b: multiply(a, b, dtype), (a, b), slope))(*factors)
  with jax.enable_x64(True):
    wide = [np.asarray(array, np.float64) for array in (*factors, slope)]
    exact = results(expected, [jnp.asarray(array) for array in wide[:2]], jnp.asarray(wide[2]))
  for ours, true in zip(found, exact, strict=True):
    assert ours.dtype == jnp.float32
    # Both factors of each summand are rounded, then up to D sums, each of the size of 16.
    limit = D * 4 * (2 * EPSILON[dtype]) + D * 16 * EPSILON["float32"]
    np.testing.assert_allclose(ours, np.asarray(true), atol=limit)


def test_float32_is_the_plain_product():
  a, b = draw(M, D), draw(D, N, seed=1)

  def value_and_gradients(multiply):
    return jax.jit(jax.value_and_grad(lambda a, b: jnp.sum(multiply(a, b) ** 2), (0, 1)))(a, b)

  jax.tree.map(
    np.testing.assert_array_equal,
    value_and_gradients(lambda a, b: products.product(a, b, "float32")),
    value_and_gradients(lambda a, b: a @ b),
  )


def test_an_activated_product_keeps_its_factors_alone():
  x, kernel = jnp.asarray(draw(M, D)), jnp.asarray(draw(D, N, seed=1))
  multiply = functools.partial(products.activated_product, dtype="float32", activate=jnp.sin)
  found, gradients = jax.vjp(multiply, x, kernel)
  expected, true_gradients = jax.vjp(lambda a, b: jnp.sin(a) @ b, x, kernel)
  assert sorted(leaf.shape for leaf in jax.tree.leaves(gradients)) == [(M, D), (D, N)]
  slope = jnp.ones_like(found)
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, atol=D * 16 * EPSILON["float32"]),
    (found, *gradients(slope)),
    (expected, *true_gradients(slope)),
  )


def gradients_of_a_layer(x, kernel):
  def loss(x, kernel):
    return jnp.sum(products.product(x, kernel, "bfloat16") ** 2)

  return jax.grad(loss, (0, 1))(x, kernel)


def test_no_product_sums_over_columns_of_its_first_factor_on_a_cpu():
  lowered = jax.jit(gradients_of_a_layer).lower(draw(M, D), draw(D, N))
  dots = [line for line in lowered.compile().as_text().splitlines() if " dot(" in line]
  assert len(dots) == 3
  assert all("lhs_contracting_dims={1}" in line for line in dots)


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_accelerators_are_told_no_layout(platform):
  exported = jax.export.export(jax.jit(gradients_of_a_layer), platforms=[platform])
  assert "custom_call" not in exported(draw(M, D), draw(D, N)).mlir_module()


def test_a_split_batch_needs_no_more_than_the_sum_of_its_gradients():
  mesh = partitioning.make_mesh()
  x, kernel = draw(32, D), draw(D, N, seed=1)
  expected = jax.jit(gradients_of_a_layer)(x, kernel)
  split = jax.device_put(x, partitioning.batch_sharding(mesh))
  whole = jax.device_put(kernel, jax.sharding.NamedSharding(mesh, PartitionSpec()))
  program = jax.jit(gradients_of_a_layer, out_shardings=(split.sharding, whole.sharding))
  text = program.lower(split, whole).compile().as_text()
  assert "all-reduce" in text
  assert not any(name in text for name in ("all-gather", "all-to-all", "collective-permute"))
  for ours, true in zip(program(split, whole), expected, strict=True):
    np.testing.assert_allclose(ours, true, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
  ("flags", "dtype"),
  [
    ("fpu avx512_bf16 amx_bf16", "bfloat16"),
    ("fpu avx512_bf16", "bfloat16"),
    ("fpu avx512f", "float32"),
    (None, "float32"),
  ],
)
def test_the_fastest_dtype_follows_from_the_processor(tmp_path, flags, dtype):
  file = tmp_path / "cpuinfo"
  if flags is not None:
    file.write_text(f"processor: 0\nflags: {flags}\n")
  assert products.fastest_dtype(processors=str(file)) == dtype
