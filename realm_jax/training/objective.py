"""Training objectives, their sums, and gradients computed in as many parts as memory requires.

Parts save memory and change nothing else: metrics stay sums until the last part. If rows are
compared with each other, all are embedded part by part and scored together, and each part is
embedded again to propagate the gradient (gradient caching, Gao et al. 2021, arXiv 2101.06983).
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from realm_jax.datatypes import Mean
from realm_jax.training import dropout_keys

LOSS = "loss/total"
Figures = dict[str, Mean]


class Minimised(Protocol):
  """What a training minimises: an `Objective`, or a `Sum` of several."""

  def gradients(
    self, params: dict, batch, key: jax.Array | None, *, parts: int
  ) -> tuple[dict, Figures]:
    """Returns the gradients of a batch's mean loss, computed in equal parts, and its metrics."""
    ...

  def of_params(self, change: Callable[[dict], dict]) -> "Minimised":
    """Returns the same objective of changed parameters."""
    ...


@dataclasses.dataclass(frozen=True)
class Objective:
  """A model and the score of its outputs.

  Attributes:
    outputs: `(params, rows, dropout key) -> tree` of float arrays, each row of which depends only
      on the same input row. A key of None disables dropout.
    score: `(outputs, rows) -> metrics`; the one named `LOSS` is minimised. Its count must not
      depend on the parameters.
    compares_rows: Whether a row's score depends on other rows. If not, the metrics of two halves of
      a batch add up to those of the whole.
  """

  outputs: Callable[[dict, Any, jax.Array | None], Any]
  score: Callable[[Any, Any], Figures]
  compares_rows: bool = False

  def figures(self, params: dict, batch, key: jax.Array | None = None) -> Figures:
    """Returns the metrics of a batch."""
    return self.score(self.outputs(params, batch, key), batch)

  def of_params(self, change: Callable[[dict], dict]) -> "Objective":
    """Returns the same objective of changed parameters."""
    return dataclasses.replace(
      self, outputs=lambda params, rows, key: self.outputs(change(params), rows, key)
    )

  def on(self, rows: Callable[[Any], Any], *, prefix: str) -> "Term":
    """Returns this objective of some rows of each batch, as a term of a sum."""
    return Term(self, rows, prefix)

  def __add__(self, term: "Term") -> "Sum":
    return Sum(self, (term,))

  def gradients(self, params: dict, batch, key, *, parts: int) -> tuple[dict, Figures]:
    """Returns the gradients of a batch's mean loss, computed in equal parts, and its metrics.

    Raises:
      ValueError: If the batch cannot be split into this many equal parts.
    """
    if parts == 1:
      sums, figures = jax.grad(self._total_and_figures, has_aux=True)(params, batch, key)
    elif self.compares_rows:
      sums, figures = self._through_cached_outputs(params, batch, key, parts)
    else:
      gradients = jax.grad(self._total_and_figures, has_aux=True)
      sums, figures = _summed(lambda part: gradients(params, *part), _cut(batch, key, parts))
    count = figures[LOSS].count
    scale = 1.0 / jnp.where(count > 0, count, 1.0)
    return jax.tree.map(lambda leaf: leaf * scale, sums), figures

  def _total_and_figures(self, params, batch, key):
    figures = self.figures(params, batch, key)
    return figures[LOSS].total, figures

  def _through_cached_outputs(self, params, batch, key, parts: int):
    def total_and_figures(outputs):
      figures = self.score(outputs, batch)
      return figures[LOSS].total, figures

    def projected(params, rows, key, cotangents):
      outputs = self.outputs(params, rows, key)
      return sum(map(jnp.vdot, jax.tree.leaves(outputs), jax.tree.leaves(cotangents)))

    cut = _cut(batch, key, parts)
    outputs = _join(jax.lax.map(lambda part: self.outputs(params, *part), cut))
    cotangents, figures = jax.grad(total_and_figures, has_aux=True)(outputs)
    cotangents = _cut_rows(cotangents, parts)
    sums = _summed(lambda part: jax.grad(projected)(params, *part), (*cut, cotangents))
    return sums, figures


@dataclasses.dataclass(frozen=True)
class Term:
  """A term of a sum.

  Attributes:
    rows: Returns its rows of a batch.
    prefix: Group of its metrics.
    weight: Factor of its mean loss.
  """

  objective: Objective
  rows: Callable[[Any], Any]
  prefix: str
  weight: float = 1.0

  def __rmul__(self, weight: float) -> "Term":
    return dataclasses.replace(self, weight=weight * self.weight)


@dataclasses.dataclass(frozen=True)
class Sum:
  """An objective with further terms, whose mean losses add up.

  The parts of each term are those of its own rows, so terms may have any numbers of rows.
  """

  first: Objective
  terms: tuple[Term, ...]

  def __add__(self, term: Term) -> "Sum":
    return Sum(self.first, (*self.terms, term))

  def of_params(self, change: Callable[[dict], dict]) -> "Sum":
    """Returns the same sum of changed parameters."""
    terms = (
      dataclasses.replace(term, objective=term.objective.of_params(change)) for term in self.terms
    )
    return Sum(self.first.of_params(change), tuple(terms))

  def gradients(
    self, params: dict, batch, key: jax.Array | None, *, parts: int
  ) -> tuple[dict, Figures]:
    """Returns the gradients of the sum, and the metrics of all terms."""
    total, figures = self.first.gradients(params, batch, key, parts=parts)
    loss = figures[LOSS]
    for number, term in enumerate(self.terms, start=1):
      own = None if key is None else jax.random.fold_in(key, number)
      added, found = term.objective.gradients(params, term.rows(batch), own, parts=parts)
      total = jax.tree.map(lambda one, other, w=term.weight: one + w * other, total, added)
      loss = Mean(loss.total + term.weight * found[LOSS].value * loss.count, loss.count)
      renamed = {f"{term.prefix}/{name.split('/')[-1]}": mean for name, mean in found.items()}
      figures = {**figures, **renamed}
    return total, {**figures, LOSS: loss}


def in_parts(figures: Callable[[Any], Figures], batch, *, parts: int) -> Figures:
  """Returns the metrics of a batch, computed in equal parts of rows that are not compared."""
  return figures(batch) if parts == 1 else _summed(figures, _cut_rows(batch, parts))


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
