"""Training objectives, their sums, and gradients computed in as many parts as memory requires.

An objective is built for a model, added to others and scaled:
`MarginalLikelihood() + 0.5 * Contrastive()`.

Parts save memory and change nothing else: metrics stay sums until the last part. If rows are
compared with each other, all are embedded part by part and scored together, and each part is
embedded again to propagate the gradient (gradient caching, Gao et al. 2021, arXiv 2101.06983).
"""

import abc
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from realm_jax.devices.datatypes import Mean
from realm_jax.foundations import choices
from realm_jax.models import dropout_keys

LOSS = "loss/total"
Metrics = dict[str, Mean]


@dataclasses.dataclass(frozen=True)
class Objective(choices.Checked, abc.ABC):
  """What a training minimises, whatever its model; subclassed by frozen, hashable dataclasses."""

  @abc.abstractmethod
  def build(self, model: Any) -> "Minimised":
    """Returns the objective of a model, a Flax module."""

  def weighted_terms(self) -> tuple[tuple[float, "Objective"], ...]:
    """Returns the terms of this objective as a sum, with their weights."""
    return ((1.0, self),)

  def __add__(self, other: "Objective") -> "Sum":
    weights, terms = zip(*self.weighted_terms(), *other.weighted_terms(), strict=True)
    return Sum(terms, weights)

  def __rmul__(self, weight: float) -> "Sum":
    weights, terms = zip(*self.weighted_terms(), strict=True)
    return Sum(terms, tuple(weight * own for own in weights))


@dataclasses.dataclass(frozen=True)
class Sum(Objective):
  """A weighted sum of objectives, which may take different rows of a batch.

  Metrics of all terms but the first are prefixed by the name of the term's class.

  Attributes:
    terms: The objectives. Evaluations during training are by the first.
    weights: Factors of their mean losses; empty weighs all by 1.
  """

  terms: tuple[Objective, ...]
  weights: tuple[float, ...] = ()

  def __post_init__(self):
    if not self.terms or len(self.weights) not in (0, len(self.terms)):
      raise ValueError(
        f"{len(self.terms)} terms of a sum with weights={self.weights}; give a weight each, or none"
      )

  def weighted_terms(self) -> tuple[tuple[float, Objective], ...]:
    weights = self.weights or (1.0,) * len(self.terms)
    return tuple(
      (outer * inner, term)
      for outer, of in zip(weights, self.terms, strict=True)
      for inner, term in of.weighted_terms()
    )

  def build(self, model: Any) -> "Minimised":
    return LossSum(
      tuple(
        (weight, re.sub("(?<=[a-z])(?=[A-Z])", "_", type(term).__name__).lower(), term.build(model))
        for weight, term in self.weighted_terms()
      )
    )


@dataclasses.dataclass(frozen=True)
class Loss:
  """A model and the score of its outputs.

  Attributes:
    outputs: `(params, rows, dropout key) -> tree` of float arrays; each row depends only
      on the same input row. A key of None disables dropout.
    score: `(outputs, rows) -> metrics`; the one named `LOSS` is minimised. Its count must not
      depend on the parameters.
    compares_rows: Whether a row's score depends on other rows. If not, the metrics of two halves of
      a batch add up to those of the whole.
    rows: Returns its rows of a batch.
  """

  outputs: Callable[[dict, Any, jax.Array | None], Any]
  score: Callable[[Any, Any], Metrics]
  compares_rows: bool = False
  rows: Callable[[Any], Any] = lambda batch: batch

  def metrics(self, params: dict, batch, *, parts: int = 1) -> Metrics:
    """Returns metrics without dropout; only rows that are not compared are computed in parts."""
    rows = self.rows(batch)
    if parts == 1 or self.compares_rows:
      return self._scored(params, rows, None)
    return _summed(lambda part: self._scored(params, part, None), _cut_rows(rows, parts))

  def of_params(self, change: Callable[[dict], dict]) -> "Loss":
    """Returns the same objective of changed parameters."""
    return dataclasses.replace(
      self, outputs=lambda params, rows, key: self.outputs(change(params), rows, key)
    )

  def gradients(self, params: dict, batch, key, *, parts: int) -> tuple[dict, Metrics]:
    """Returns the gradients of a batch's mean loss, computed in equal parts, and its metrics.

    Raises:
      ValueError: If the batch cannot be split into this many equal parts.
    """
    rows = self.rows(batch)
    if parts == 1:
      sums, metrics = jax.grad(self._total_and_metrics, has_aux=True)(params, rows, key)
    elif self.compares_rows:
      sums, metrics = self._through_cached_outputs(params, rows, key, parts)
    else:
      gradients = jax.grad(self._total_and_metrics, has_aux=True)
      sums, metrics = _summed(lambda part: gradients(params, *part), _cut(rows, key, parts))
    count = metrics[LOSS].count
    scale = 1.0 / jnp.where(count > 0, count, 1.0)
    return jax.tree.map(lambda leaf: leaf * scale, sums), metrics

  def _scored(self, params, rows, key) -> Metrics:
    return self.score(self.outputs(params, rows, key), rows)

  def _total_and_metrics(self, params, rows, key):
    metrics = self._scored(params, rows, key)
    return metrics[LOSS].total, metrics

  def _through_cached_outputs(self, params, batch, key, parts: int):
    def total_and_metrics(outputs):
      metrics = self.score(outputs, batch)
      return metrics[LOSS].total, metrics

    def projected(params, rows, key, cotangents):
      outputs = self.outputs(params, rows, key)
      return sum(map(jnp.vdot, jax.tree.leaves(outputs), jax.tree.leaves(cotangents)))

    cut = _cut(batch, key, parts)
    outputs = _join(jax.lax.map(lambda part: self.outputs(params, *part), cut))
    cotangents, metrics = jax.grad(total_and_metrics, has_aux=True)(outputs)
    cotangents = _cut_rows(cotangents, parts)
    sums = _summed(lambda part: jax.grad(projected)(params, *part), (*cut, cotangents))
    return sums, metrics


@dataclasses.dataclass(frozen=True)
class LossSum:
  """Losses with weights and names; their means add up.

  The parts of each are those of its own rows, so terms may have any numbers of rows.
  """

  terms: tuple[tuple[float, str, "Minimised"], ...]

  def of_params(self, change: Callable[[dict], dict]) -> "LossSum":
    """Returns the same objective of changed parameters."""
    return LossSum(tuple((weight, name, of.of_params(change)) for weight, name, of in self.terms))

  def metrics(self, params: dict, batch, *, parts: int = 1) -> Metrics:
    """Returns the metrics of a batch without dropout."""
    return self._added([of.metrics(params, batch, parts=parts) for _, _, of in self.terms])

  def gradients(self, params: dict, batch, key, *, parts: int) -> tuple[dict, Metrics]:
    """Returns the gradients of the sum, and its metrics; each term has a dropout key of its own."""
    total, metrics = None, []
    for number, (weight, _, of) in enumerate(self.terms):
      own = key if key is None or not number else jax.random.fold_in(key, number)
      gradients, found = of.gradients(params, batch, own, parts=parts)
      metrics.append(found)
      weighted = jax.tree.map(lambda leaf, weight=weight: weight * leaf, gradients)
      total = weighted if total is None else jax.tree.map(jnp.add, total, weighted)
    assert total is not None
    return total, self._added(metrics)

  def _added(self, metrics: list[Metrics]) -> Metrics:
    (first_weight, *_), merged = self.terms[0], dict(metrics[0])
    loss = merged[LOSS]
    total = first_weight * loss.total
    for (weight, name, _), found in zip(self.terms[1:], metrics[1:], strict=True):
      total = total + weight * found[LOSS].value * loss.count
      merged |= {f"{name}/{metric.split('/')[-1]}": mean for metric, mean in found.items()}
    return {**merged, LOSS: Mean(total, loss.count)}


Minimised = Loss | LossSum


def dropout_keywords(key: jax.Array | None) -> dict:
  """Returns the keywords with which a module is applied; None disables dropout."""
  if key is None:
    return {"deterministic": True}
  return {"deterministic": False, "rngs": {"dropout": key}}


def grouped(metrics: Mapping[str, Mean], group: str, *, loss: Sequence[str] = ()) -> Metrics:
  """Prefixes metrics by group, as TensorBoard shows them; `loss` names those of the group loss."""
  groups = dict.fromkeys(loss, "loss")
  return {
    LOSS if name == "loss" else f"{groups.get(name, group)}/{name}": mean
    for name, mean in metrics.items()
  }


def _cut(batch, key: jax.Array, parts: int):
  """Returns the rows of all parts, and a key for each that keeps every row's dropout."""
  rows = _cut_rows(batch, parts)
  part_size = jax.tree.leaves(rows)[0].shape[1]
  keys = jax.vmap(lambda i: dropout_keys.of_part(key, i, parts=parts, rows=part_size))
  return rows, keys(jnp.arange(parts))


def _cut_rows(tree, parts: int):
  def cut(leaf):
    if leaf.shape[0] % parts:
      raise ValueError(
        f"a batch of {leaf.shape[0]} cannot be split into {parts} equal parts; "
        "change accumulate_steps"
      )
    # Part i takes every parts-th row, so that each device has a share of every part.
    return leaf.reshape(leaf.shape[0] // parts, parts, *leaf.shape[1:]).swapaxes(0, 1)

  return jax.tree.map(cut, tree)


def _join(tree):
  """Undoes `_cut_rows`."""
  return jax.tree.map(lambda leaf: leaf.swapaxes(0, 1).reshape(-1, *leaf.shape[2:]), tree)


def _summed(function, parts):
  """Sums what a function returns for each part."""
  first = jax.tree.map(lambda leaf: leaf[0], parts)
  shapes = jax.eval_shape(function, first)
  zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
  total, _ = jax.lax.scan(
    lambda total, part: (jax.tree.map(jnp.add, total, function(part)), None), zeros, parts
  )
  return total
