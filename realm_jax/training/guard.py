"""Freezes the dual encoder until retrieval helps, and again if retrieval collapses.

A retriever whose reader cannot read yet unlearns its warm start. The guard therefore compares the
likelihood of the answers given the retrieved passages with their likelihood given the null passage
alone and, every few steps, given the passages of other queries. Until it exceeds both, the dual
encoder gets no updates and its moments do not change; then its updates grow gradually to full size.
While it is frozen, every second batch teaches reading: its queries are read beside the passages
that they were cut from, where the corpus has them. These batches do not count as evidence.

Decisions are made inside the train step, on arrays of the train state: nothing waits or recompiles,
all processes decide alike, and a resumed run continues as if it had not stopped.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import flax.struct
import jax
import jax.numpy as jnp

from realm_jax.datatypes import Array, Mean
from realm_jax.training.objective import Objective

if TYPE_CHECKING:
  from realm_jax.training.alarms import AlarmSettings
  from realm_jax.training.train_state import TrainState

PART = "dual_encoder"
STATE, SINCE = "guard/state", "guard/since"
USELESS, HUB, CERTAIN, NULL, FREE = range(5)
WORDS = (
  "held: passages help no more than none, or than those of other queries",
  "held: one passage is retrieved for most queries",
  "held: one passage has all the probability",
  "held: the null passage has all the probability",
  "let go: retrieval helps",
)
_UTILITY, _OVER_SHUFFLED, _HUB_SHARE = "utility", "utility_over_shuffled", "hub_share"
_ENTROPY, _NULL_MASS = "entropy", "null_mass"
_OF_STEP = {  # metrics of a step that are smoothed
  _UTILITY: "retrieval/retrieval_utility",
  _ENTROPY: "retrieval/retrieval_entropy",
  _NULL_MASS: "retrieval/null_mass",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GuardConfig:
  """When the dual encoder may learn.

  Attributes:
    enabled: False lets the dual encoder learn from the first step, as in the paper.
    margin: Retrieval utility in nats per mask, over the null passage and over the passages of other
      queries, above which the dual encoder is released. At 0 it is frozen again.
    window: Steps over which metrics are smoothed; no decision is made earlier.
    measure_every: Steps between two comparisons with the passages of other queries, each of which
      costs a third of a step.
    ramp_steps: Steps over which the updates of the dual encoder grow to full size.
  """

  enabled: bool = True
  margin: float = 0.05
  window: int = 20
  measure_every: int = 20
  ramp_steps: int = 100

  def __post_init__(self):
    if not 2 <= self.measure_every <= self.window or self.measure_every % 2:
      raise ValueError(
        f"guard.measure_every={self.measure_every} and guard.window={self.window}; give an even "
        "number of steps within the window"
      )


@flax.struct.dataclass
class GuardState:
  """The guard's part of the train state.

  Attributes:
    state: int32 index into `WORDS`.
    since: int32 step at which the dual encoder was frozen or released.
    smoothed: Metrics since then; recent steps weigh more.
    of_others: Utility of other queries' passages in the next step; NaN if it is not measured.
  """

  state: Array
  since: Array
  smoothed: dict[str, Mean]
  of_others: Array

  @property
  def teaching(self) -> jax.Array:
    """Whether every second batch teaches reading."""
    return self.state != FREE


@dataclasses.dataclass(frozen=True)
class Guard:
  """Decides from the metrics of the steps whether the dual encoder may learn.

  Attributes:
    limits: Thresholds beyond which retrieval has collapsed.
    shuffled: Returns a batch in which queries have the passages of other queries.
    hub_share: Returns the share of a batch's queries that get the same passage.
  """

  config: GuardConfig
  limits: "AlarmSettings"
  shuffled: Callable[[Any], Any]
  hub_share: Callable[[Any], jax.Array]

  def start(self) -> GuardState:
    """Returns the initial state."""
    names = (*_OF_STEP, _OVER_SHUFFLED, _HUB_SHARE)
    return GuardState(
      state=jnp.asarray(USELESS if self.config.enabled else FREE, jnp.int32),
      since=jnp.zeros([], jnp.int32),
      smoothed={name: Mean(jnp.zeros([]), jnp.zeros([])) for name in names},
      of_others=jnp.full([], jnp.nan, jnp.float32),
    )

  def scale(self, state: "TrainState") -> jax.Array:
    """Returns the factor of the dual encoder's updates, from 0 to 1."""
    ramp = (state.step - _guarded(state).since + 1) / max(self.config.ramp_steps, 1)
    return jnp.where(_guarded(state).state == FREE, jnp.minimum(ramp, 1.0), 0.0)

  def utility_of_others(
    self, objective: Objective, params: dict, batch: Any, *, parts: int
  ) -> jax.Array:
    """Returns the retrieval utility of the passages of other queries.

    It is measured without dropout, which only makes the comparison stricter.
    """
    figures = objective.figures_of_first_part(params, self.shuffled(batch), parts=parts)
    return figures[_OF_STEP[_UTILITY]].value

  def watch(
    self, state: "TrainState", metrics: Mapping[str, jax.Array], batch: Any
  ) -> tuple[GuardState, dict[str, jax.Array]]:
    """Returns the guard's state after a step with these metrics, and its own metrics."""
    now, taken = _guarded(state), state.step + 1
    seen = {name: metrics[source] for name, source in _OF_STEP.items()}
    # Batches of odd steps may have taught reading.
    seen[_UTILITY] = jnp.where(state.step % 2 == 0, seen[_UTILITY], jnp.nan)
    seen[_OVER_SHUFFLED] = seen[_UTILITY] - now.of_others
    seen[_HUB_SHARE] = self.hub_share(batch)
    smoothed = {name: self._smoothed(now.smoothed[name], seen[name]) for name in seen}
    ripe = taken - now.since >= self.config.window
    verdict = jnp.where(ripe, self._judged(now.state == FREE, smoothed), now.state)
    changed = (verdict == FREE) != (now.state == FREE)
    after = GuardState(
      state=verdict,
      since=jnp.where(changed, taken, now.since),
      # Metrics of a frozen dual encoder say nothing about one that learns, and vice versa.
      smoothed=jax.tree.map(lambda leaf: jnp.where(changed, 0.0, leaf), smoothed),
      of_others=jnp.full([], jnp.nan, jnp.float32),
    )
    return after, {
      STATE: after.state,
      SINCE: after.since,
      "guard/scale": self.scale(state),
      **{f"guard/{name}": mean.value for name, mean in smoothed.items()},
    }

  def _smoothed(self, before: Mean, value: jax.Array) -> Mean:
    keep = 1 - 1 / self.config.window
    missing = jnp.isnan(value)
    return Mean(
      jnp.where(missing, before.total, keep * before.total + value),
      jnp.where(missing, before.count, keep * before.count + 1),
    )

  def _judged(self, free: jax.Array, smoothed: Mapping[str, Mean]) -> jax.Array:
    seen = {name: mean.value for name, mean in smoothed.items()}
    margin = jnp.where(free, 0.0, self.config.margin)
    useless = (seen[_UTILITY] <= margin) | (seen[_OVER_SHUFFLED] <= margin)
    verdict = jnp.where(useless, USELESS, FREE)
    collapses = (
      (seen[_NULL_MASS] > self.limits.null_mass, NULL),
      (seen[_ENTROPY] < self.limits.entropy, CERTAIN),
      (seen[_HUB_SHARE] > self.limits.hub_share, HUB),
    )
    for collapsed, cause in collapses:
      verdict = jnp.where(collapsed, cause, verdict)
    return verdict.astype(jnp.int32)


def scaled(tree: Any, factor: jax.Array) -> dict:
  """Multiplies the dual encoder's part of gradients or updates; a factor of 0 gives 0."""
  part = jax.tree.map(
    lambda leaf: jnp.where(factor > 0, leaf * factor.astype(leaf.dtype), 0), tree[PART]
  )
  return {**tree, PART: part}


def held_for_cause(row: Mapping, *, was_free: bool) -> bool:
  """Returns whether the dual encoder is frozen for another reason than not helping yet."""
  state = row.get(STATE)
  return state not in (None, FREE) and (was_free or state != USELESS)


def words(row: Mapping) -> str | None:
  """Returns a description of the guard in a row of metrics; None without a guard."""
  if row.get(STATE) is None:
    return None
  text = WORDS[int(row[STATE])]
  figures = ", ".join(
    f"{name.replace('_', ' ')} {row[f'guard/{name}']:.3f}"
    for name in (_UTILITY, _OVER_SHUFFLED, _HUB_SHARE, _ENTROPY, _NULL_MASS)
    if row.get(f"guard/{name}") is not None
  )
  return f"{text} (since step {int(row[SINCE])}; {figures})"


def _guarded(state: "TrainState") -> GuardState:
  assert state.guard is not None, "a guarded training has a guarded state"
  return state.guard
