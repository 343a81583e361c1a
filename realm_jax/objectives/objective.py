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

from realm_jax.devices.datatypes import Lengths, Mean
from realm_jax.foundations import choices
from realm_jax.models import dropout, lengths

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
      on the same input row. A key of None disables dropout; the `Tokens` among the rows have noise
      of the key.
    score: `(outputs, rows) -> metrics`; the one named `LOSS` is minimised. Its count must not
      depend on the parameters.
    compares_rows: Whether a row's score depends on other rows. If not, the metrics of two halves of
      a batch add up to those of the whole.
    rows: Returns its rows of a batch.
    ways: `(rows, lengths) -> [(whether they fit, rows)]`: ways to compute the same, cheapest first,
      of which the last always fits.
    lengths: Those of the corpus's passages, from which the ways follow; empty if unknown.
  """

  outputs: Callable[[dict, Any, jax.Array | None], Any]
  score: Callable[[Any, Any], Metrics]
  compares_rows: bool = False
  rows: Callable[[Any], Any] = lambda batch: batch
  ways: Callable[[Any, Lengths], Sequence[tuple[jax.Array, Any]]] = lambda rows, lengths: [
    (jnp.array(True), rows)
  ]
  lengths: Lengths = ()

  def metrics(self, params: dict, batch, *, parts: int = 1) -> Metrics:
    """Returns metrics without dropout; only rows that are not compared are computed in parts."""
    rows = self.rows(batch)

    def scored(part) -> Metrics:
      return self._in_cheapest_way(lambda rows: self._scored(params, rows, None), part)

    if parts == 1 or self.compares_rows:
      return scored(rows)
    return _summed(scored, _cut(lengths.balanced(rows, parts=parts), parts))

  def of_lengths(self, of_corpus: Lengths) -> "Loss":
    """Returns the same objective for passages of a corpus, by their lengths."""
    return dataclasses.replace(self, lengths=of_corpus)

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
    if key is not None:
      rows = dropout.with_noise(rows, key)
    if parts > 1:
      rows = lengths.balanced(rows, parts=parts)

    def gradients(part) -> tuple[dict, Metrics]:
      of_params = jax.grad(self._total_and_metrics, has_aux=True)
      return self._in_cheapest_way(lambda rows: of_params(params, rows, key), part)

    if parts == 1:
      sums, metrics = gradients(rows)
    elif self.compares_rows:
      sums, metrics = self._through_cached_outputs(params, rows, key, parts)
    else:
      sums, metrics = _summed(gradients, _cut(rows, parts))
    count = metrics[LOSS].count
    scale = 1.0 / jnp.where(count > 0, count, 1.0)
    return jax.tree.map(lambda leaf: leaf * scale, sums), metrics

  def _in_cheapest_way(self, compute: Callable[[Any], Any], rows) -> Any:
    fits, ways = zip(*self.ways(rows, self.lengths), strict=True)
    branches = [lambda way=way: compute(way) for way in ways]
    # All devices take the same branch: whether rows fit is one number of all of them.
    return jax.lax.switch(jnp.argmax(jnp.stack(fits)), branches)

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

    def outputs_of(part):
      return self._in_cheapest_way(lambda rows: self.outputs(params, rows, key), part)

    def gradients_of(part):
      rows, cotangents = part
      of_params = jax.grad(projected)
      return self._in_cheapest_way(lambda rows: of_params(params, rows, key, cotangents), rows)

    cut = _cut(batch, parts)
    outputs = _join(jax.lax.map(outputs_of, cut))
    cotangents, metrics = jax.grad(total_and_metrics, has_aux=True)(outputs)
    return _summed(gradients_of, (cut, _cut(cotangents, parts))), metrics


@dataclasses.dataclass(frozen=True)
class LossSum:
  """Losses with weights and names; their means add up.

  The parts of each are those of its own rows, so terms may have any numbers of rows.
  """

  terms: tuple[tuple[float, str, "Minimised"], ...]

  def of_lengths(self, of_corpus: Lengths) -> "LossSum":
    """Returns the same objective for passages of a corpus, by their lengths."""
    return LossSum(
      tuple((weight, name, of.of_lengths(of_corpus)) for weight, name, of in self.terms)
    )

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


def _cut(tree, parts: int):
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
  """Undoes `_cut`."""
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
