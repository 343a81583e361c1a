import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
