"""Evaluates fixed queries between the steps of a training."""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches
from realm_jax.devices import processes
from realm_jax.retrieval.index_refresher import IndexRefresher
from realm_jax.retrieval.retriever import Retriever
from realm_jax.training.recipes.examples import Examples
from realm_jax.training.recipes.pretraining import Pretraining
from realm_jax.training.recipes.samples import retrieved_samples
from realm_jax.training.run.validation import Validation


class FixedValidation(Validation):
  """Evaluates fixed queries with the current parameters and what they retrieve.

  Args:
    config: The training; passages are found as it does, except for what a posterior proposes.
    examples: Masked queries, read once in the order of their corpus and kept in every process.
    store: The knowledge corpus of the retriever.
    refresher: Has the generation to search.
  """

  metric, better, at_start = "eval/loss", "lower", True

  def __init__(
    self,
    config: Pretraining,
    examples: Examples,
    *,
    store: PassageStore,
    retriever: Retriever,
    refresher: IndexRefresher,
    put_on_devices: Callable[[Any], Any],
  ):
    self.every, self._store = config.eval_every, store
    found = examples.open(batch_size=config.data.batch_size, seed=0, training=False)
    self._batches = [
      batches.masked_queries(batch) for batch in itertools.islice(found, config.eval_steps)
    ]
    if not self._batches:
      raise ValueError("no queries to evaluate: the corpus has no sentence with a salient span")
    arrays = [np.asarray(array) for array in jax.tree.leaves(self._batches)]
    self.digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:12]
    self._retriever = dataclasses.replace(retriever, config=config.retrieval.answering)
    self._refresher, self._put_on_devices = refresher, put_on_devices
    self._program = config.evaluation_program(lengths=store.length_quantiles())
    self._first_batch: Any = None  # of the last evaluation, on the host

  def __call__(self, params) -> dict[str, float]:
    """Returns the metrics over all batches, named `eval/...`."""
    self._retriever.use(self._refresher.current)
    rows = []
    for queries in self._batches:
      own = jax.tree.map(processes.own_rows, queries)
      batch, _ = self._retriever.finish(self._retriever.begin(params, own))
      if not rows:
        self._first_batch = batch
      rows.append(self._program(params, self._put_on_devices(batch)))
    sums = jax.tree.map(lambda *parts: sum(parts), *jax.device_get(rows))
    return {f"eval/{name}": float(mean.value) for name, mean in sums.items()}

  def samples(self) -> str:
    return retrieved_samples(self._first_batch, tokenizer=self._store.vocabulary, store=self._store)
