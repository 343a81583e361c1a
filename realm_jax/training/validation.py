"""Evaluations between the steps of a training, and samples of what is retrieved."""

import abc
import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable
from typing import Any, Literal

import jax
import numpy as np

from realm_jax.corpus.passage_store import Passages, PassageStore
from realm_jax.data import batches
from realm_jax.devices import processes
from realm_jax.devices.datatypes import RetrievedBatch
from realm_jax.retrieval.index_refresher import IndexRefresher
from realm_jax.retrieval.retriever import Retriever
from realm_jax.text.wordpieces import WordPieces
from realm_jax.training.examples import Examples
from realm_jax.training.pretraining import Pretraining

SAMPLES = 4  # queries that are shown


class StoppedError(Exception):
  """An evaluation was left because the run was told to stop."""


class Validation(abc.ABC):
  """An evaluation between steps, which chooses the best parameters.

  Attributes:
    every: Steps between evaluations; the last step has one as well.
    metric: The metric that chooses.
    better: Whether a "higher" or a "lower" one is better.
    digest: Digest of what is evaluated.
    at_start: Whether the parameters of step 0 may be the best.
  """

  every: int
  metric: str
  better: Literal["higher", "lower"] = "higher"
  digest: str
  at_start: bool = False

  @abc.abstractmethod
  def __call__(self, params) -> dict[str, float]:
    """Returns the metrics; raises StoppedError once the run is to stop."""

  @abc.abstractmethod
  def samples(self) -> str:
    """Returns examples of the last evaluation as Markdown."""


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


def retrieved_samples(batch: RetrievedBatch, *, tokenizer: WordPieces, store: Passages) -> str:
  """Returns the first queries of a batch, their masked words, and tables of their passages."""
  queries, texts = batch.queries, []
  for row in range(min(SAMPLES, len(batch.passage_ids_BxK))):
    ids = np.asarray(queries.query.ids[row])[np.asarray(queries.query.mask[row])][1:-1]
    wanted = queries.mlm_targets_BxM[row][queries.mlm_weights_BxM[row] > 0]
    passages = zip(batch.passage_ids_BxK[row].tolist(), batch.stale_scores_BxK[row], strict=True)
    texts.append(table(tokenizer.decode(ids), tokenizer.decode(wanted), passages, store=store))
  return "\n\n".join(texts)


def table(
  query: str, answer: str, passages: Iterable[tuple[int, float]], *, store: Passages
) -> str:
  """Returns Markdown: a query, its answer, and its passages except those with negative ids."""
  lines = [f"**{_plain(query)}** ({_plain(answer)})", "", "| score | passage |", "|---:|---|"]
  for passage_id, score in passages:
    if passage_id >= 0:
      text = f"{store.title(passage_id)}: {store.text(passage_id)}"
      by = "posterior" if np.isneginf(score) else f"{score:.2f}"
      lines.append(f"| {by} | {_plain(text)} |")
  return "\n".join(lines)


def _plain(text: str) -> str:
  """Escapes characters that are special in Markdown or HTML."""
  for sign in "\\&|*_<>`[]":
    text = text.replace(sign, f"\\{sign}" if sign in "\\|*_`[]" else f"&#{ord(sign)};")
  return " ".join(text.split())
