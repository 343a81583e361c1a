"""One training step: loss, gradients, update; non-finite steps change nothing and are counted.

Schedules go on even over a step that is skipped: they are functions of the steps taken, as data
order and dropout are, so that a run of `num_steps` always ends with the rate that was asked for.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from realm_jax.training.dropout_keys import dropout_key
from realm_jax.training.train_state import TrainState

Metrics = dict[str, jax.Array]
LossFn = Callable[[dict, Any, jax.Array], tuple[jax.Array, Metrics]]


def make_train_step(
  loss_fn: LossFn,
  optimizer: optax.GradientTransformation,
  *,
  seed: int,
  accumulate_steps: int = 1,
) -> Callable[[TrainState, Any], tuple[TrainState, Metrics]]:
  """Returns the pure function `(state, batch) -> (state, metrics)`.

  Args:
    loss_fn: `(params, batch, dropout key) -> (loss, metrics)`, scalars that are means over the
      batch.
    optimizer: see `optimizer.make_optimizer`.
    seed: of dropout; a step's key depends on the seed and the step alone.
    accumulate_steps: parts of the batch whose gradients are taken one after the other and averaged.

  Raises:
    ValueError: on tracing, if the batch cannot be cut into `accumulate_steps` equal parts.
  """

  def loss_and_gradients(params, batch, key):
    (_, metrics), gradients = jax.value_and_grad(loss_fn, has_aux=True)(params, batch, key)
    return gradients, metrics

  def train_step(state: TrainState, batch) -> tuple[TrainState, Metrics]:
    key = dropout_key(seed, state.step)
    if accumulate_steps == 1:
      gradients, metrics = loss_and_gradients(state.params, batch, key)
    else:
      gradients, metrics = _accumulated(
        loss_and_gradients, state.params, batch, key, accumulate_steps
      )
    norm = optax.global_norm(gradients)
    finite = jnp.isfinite(norm)
    updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)

    def keep_if_finite(new, old):
      return new if _is_schedule(new) else jnp.where(finite, new, old)

    state = TrainState(
      step=state.step + 1,
      params=jax.tree.map(keep_if_finite, params, state.params),
      opt_state=jax.tree.map(keep_if_finite, opt_state, state.opt_state, is_leaf=_is_schedule),
      skipped_steps=state.skipped_steps + jnp.where(finite, 0, 1),
    )
    return state, {**metrics, "gradient_norm": norm, "skipped_steps": state.skipped_steps}

  return train_step


def _is_schedule(node) -> bool:
  return isinstance(node, optax.ScaleByScheduleState)


def _accumulated(loss_and_gradients, params, batch, key, parts: int):
  """Averages gradients and metrics over equal parts of the batch."""

  def cut(leaf):
    if leaf.shape[0] % parts:
      raise ValueError(
        f"a batch of {leaf.shape[0]} cannot be cut into {parts} equal parts; "
        "change accumulate_steps"
      )
    # Part i takes every parts-th example, so that each device keeps a share of every part.
    return leaf.reshape(leaf.shape[0] // parts, parts, *leaf.shape[1:]).swapaxes(0, 1)

  def body(total, part):
    index, examples = part
    result = loss_and_gradients(params, examples, jax.random.fold_in(key, index))
    return jax.tree.map(jnp.add, total, result), None

  parted = jax.tree.map(cut, batch)
  first = jax.tree.map(lambda leaf: leaf[0], parted)
  shapes = jax.eval_shape(loss_and_gradients, params, first, key)
  zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
  total, _ = jax.lax.scan(body, zeros, (jnp.arange(parts), parted))
  return jax.tree.map(lambda leaf: leaf / parts, total)
