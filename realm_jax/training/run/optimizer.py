"""Optimizers: BERT's Adam, and AdamW."""

import dataclasses
import functools
from typing import Literal, NamedTuple

import flax.traverse_util
import jax
import jax.numpy as jnp
import optax

from realm_jax.foundations import choices

_BETA1 = 0.9  # decay of the first moment
_EPSILON = 1e-6  # added outside the square root
_CLIP_NORM = 1.0  # maximum global norm of a gradient


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig(choices.Checked):
  """Settings of the optimizer.

  Attributes:
    name: "bert_adam" (Adam without bias correction, as for BERT and REALM) or "adamw".
    learning_rate: Learning rate at the end of the warm-up.
    warmup_steps: Steps of linear warm-up; None uses a tenth of the run, at most 10,000.
    schedule: "linear" decay to zero at the end of the run, or "constant" after the warm-up.
    weight_decay: Decoupled weight decay, not applied to biases and LayerNorm.
    beta2: Decay of the second moment.
    learning_rate_factors: Pairs of a top-level part of the parameters and its learning-rate factor.
    frozen_steps: Pairs of a top-level part and the number of initial steps in which it is frozen. A
      reader that cannot read yet makes the retriever unlearn its warm start.
    frozen_parts: Paths of parts that are never trained, joined by "/"; they have no moments.
  """

  name: Literal["bert_adam", "adamw"] = "bert_adam"
  learning_rate: choices.PositiveOrZero = 3e-5
  warmup_steps: choices.CountOrZero | None = None
  schedule: Literal["linear", "constant"] = "linear"
  weight_decay: choices.PositiveOrZero = 0.01
  beta2: choices.Rate = 0.999
  learning_rate_factors: tuple[tuple[str, choices.PositiveOrZero], ...] = ()
  frozen_steps: tuple[tuple[str, choices.CountOrZero], ...] = ()
  frozen_parts: tuple[str, ...] = ()

  @property
  def spans_the_run(self) -> bool:
    """Whether the learning rate of a step depends on the length of the run."""
    return self.schedule == "linear" or self.warmup_steps is None

  def warmup(self, num_steps: int) -> int:
    """Returns the number of warm-up steps of a run."""
    if self.warmup_steps is None:
      return min(10_000, num_steps // 10)
    if 0 < num_steps < self.warmup_steps:
      raise ValueError(
        f"warmup_steps={self.warmup_steps} exceeds num_steps={num_steps}; lower it, or omit it"
      )
    return self.warmup_steps


class BertAdamState(NamedTuple):
  """Moments of `scale_by_bert_adam`."""

  mu: optax.Updates
  nu: optax.Updates


def make_optimizer(config: OptimizerConfig, *, num_steps: int) -> optax.GradientTransformation:
  """Returns a chain of clipping, moments, weight decay and learning rate."""
  if config.name == "bert_adam":
    moments = scale_by_bert_adam(b1=_BETA1, b2=config.beta2, eps=_EPSILON)
  else:
    moments = optax.scale_by_adam(b1=_BETA1, b2=config.beta2, eps=_EPSILON)
  transformation = optax.chain(
    optax.clip_by_global_norm(_CLIP_NORM),
    moments,
    optax.add_decayed_weights(config.weight_decay, mask=decayed),
    optax.scale_by_learning_rate(learning_rate_schedule(config, num_steps=num_steps)),
    scale_parts(dict(config.learning_rate_factors), frozen_steps=dict(config.frozen_steps)),
  )
  if not config.frozen_parts:
    return transformation
  return optax.partition(
    {"trained": transformation, "frozen": optax.set_to_zero()},
    functools.partial(_labels, frozen_parts=config.frozen_parts),
  )


def learning_rate_schedule(config: OptimizerConfig, *, num_steps: int) -> optax.Schedule:
  """Returns BERT's schedule: linear warm-up, then the linear decay from step 0 to zero at the end.

  Raises:
    ValueError: If the warm-up is longer than the run.
  """
  warmup = config.warmup(num_steps)

  def schedule(step):
    step = jnp.asarray(step, jnp.float32)
    after = 1.0
    if config.schedule == "linear":
      after = jnp.maximum(0.0, 1.0 - step / max(num_steps, 1))
    return config.learning_rate * jnp.where(step < warmup, step / max(warmup, 1), after)

  return schedule


def scale_by_bert_adam(*, b1: float, b2: float, eps: float) -> optax.GradientTransformation:
  """Adam without bias correction, as in BERT's released optimizer."""

  def init(params):
    return BertAdamState(*(jax.tree.map(jnp.zeros_like, params) for _ in range(2)))

  def update(updates, state, params=None):
    del params
    mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, updates)
    nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * jnp.square(g), state.nu, updates)
    updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu, nu)
    return updates, BertAdamState(mu, nu)

  return optax.GradientTransformation(init, update)


def scale_parts(
  factors: dict[str, float], *, frozen_steps: dict[str, int]
) -> optax.GradientTransformation:
  """Multiplies the updates of top-level parts by their factors, or by 0 while they are frozen."""

  def init(params):
    unknown = (factors.keys() | frozen_steps.keys()) - params.keys()
    if unknown:
      raise ValueError(
        f"learning_rate_factors or frozen_steps name {sorted(unknown)}, the parameters have"
        f" {sorted(params)}"
      )
    return optax.ScaleByScheduleState(jnp.zeros([], jnp.int32))

  def update(updates, state, params=None):
    del params
    scaled = {}
    for part, tree in updates.items():
      factor = factors.get(part, 1.0) * (state.count >= frozen_steps.get(part, 0))
      scaled[part] = jax.tree.map(lambda leaf, factor=factor: leaf * factor, tree)
    return scaled, optax.ScaleByScheduleState(state.count + 1)

  return optax.GradientTransformation(init, update)


def _labels(params, *, frozen_parts: tuple[str, ...]) -> dict:
  flat = flax.traverse_util.flatten_dict(params, sep="/")
  labels = {
    path: "frozen" if any(f"{path}/".startswith(f"{part}/") for part in frozen_parts) else "trained"
    for path in flat
  }
  for part in frozen_parts:
    if not any(f"{path}/".startswith(f"{part}/") for path in flat):
      raise ValueError(f"frozen_parts name {part!r}, the parameters have {sorted(params)}")
  return flax.traverse_util.unflatten_dict(labels, sep="/")


def decayed(params) -> dict:
  """Returns a mask of what weight decay applies to: matrices, except biases and LayerNorm."""

  def is_matrix(path, leaf) -> bool:
    named = "bias" in path[-1] or any("norm" in part for part in path)
    return not named and getattr(leaf, "ndim", 0) > 1  # what is trained elsewhere has no axes

  flat = flax.traverse_util.flatten_dict(params)
  decays = {path: is_matrix(path, leaf) for path, leaf in flat.items()}
  return flax.traverse_util.unflatten_dict(decays)
