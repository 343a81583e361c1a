"""Evaluations between the steps of a training, and samples of what is retrieved, as Markdown."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from realm_jax.answering.editable_corpus import EditableCorpus
from realm_jax.answering.question_answerer import QuestionAnswerer, QuestionModel
from realm_jax.corpus.passage_store import PassageStore, StoredPassages
from realm_jax.data import batches
from realm_jax.data.questions import read_questions, sampled
from realm_jax.devices import processes
from realm_jax.devices.datatypes import MaskedQueries, Mean, RetrievedBatch
from realm_jax.evaluation import open_qa
from realm_jax.evaluation.open_questions import OpenQuestions
from realm_jax.evaluation.systems import Asking, System
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.text.wordpieces import WordPieces
from realm_jax.training.finetuning import DevConfig

_RETRIEVED = 20  # passages retrieved to measure recall
_SAMPLES, _SAMPLE_PASSAGES = 4, 5


class FixedEvaluation:
  """Evaluates fixed queries with the current parameters and what they retrieve.

  Args:
    features: Batches of masked queries, the same in every process; read once and kept.
    retrieve: `(params, queries) -> batch`, on the host: finds passages as the training does.
    metrics: `(params, placed RetrievedBatch) -> metrics` of a batch.

  Raises:
    ValueError: If there are no queries.
  """

  def __init__(
    self,
    features: Iterable[batches.Features],
    *,
    max_batches: int,
    retrieve: Callable[[dict, MaskedQueries], RetrievedBatch],
    metrics: Callable[[dict, Any], dict[str, Mean]],
    put_on_devices: Callable[[Any], Any],
  ):
    self._batches = [
      batches.masked_queries(batch) for batch in itertools.islice(features, max_batches)
    ]
    if not self._batches:
      raise ValueError("no queries to evaluate: the corpus has no sentence with a salient span")
    self._retrieve = retrieve
    self._metrics = metrics
    self._put_on_devices = put_on_devices
    self.first_batch: Any = None  # of the last evaluation, on the host

  def __call__(self, params) -> dict[str, float]:
    """Returns the metrics over all batches, named `eval/...`."""
    rows = []
    for queries in self._batches:
      own = jax.tree.map(processes.own_rows, queries)
      batch = self._retrieve(params, own)
      if not rows:
        self.first_batch = batch
      rows.append(self._metrics(params, self._put_on_devices(batch)))
    sums = jax.tree.map(lambda *parts: sum(parts), *jax.device_get(rows))
    return {f"eval/{name}": float(mean.value) for name, mean in sums.items()}


class QuestionEvaluation:
  """Answers dev questions with the current parameters and index generation.

  Args:
    loaded: Returns the generation to search.

  Attributes:
    metric: The metric that selects the best checkpoint.

  Raises:
    ValueError: If there is no such metric.
  """

  def __init__(
    self,
    questions: str,
    *,
    config: DevConfig,
    model: QuestionModel,
    store: PassageStore,
    loaded: Callable[[], LoadedGeneration],
    passage_length: int,
    batch_size: int,
  ):
    dev_questions = sampled(read_questions(questions), config.max_dev_questions)
    recall_at = [k for k in open_qa.RECALL_AT if k <= _RETRIEVED]
    known = open_qa.score_names(dev_questions, width=min(_RETRIEVED, len(store)))
    if config.best_metric not in known:
      raise ValueError(f"best_metric={config.best_metric!r}; choose one of {', '.join(known)}")
    self.metric = f"dev/{config.best_metric}"
    self._questions = OpenQuestions(
      inputs={"dev questions": questions},
      questions=dev_questions,
      asking=Asking(recall_at=recall_at, batch_size=batch_size),
    )
    self._model = model
    self._store, self._loaded, self._passage_length = store, loaded, passage_length
    self._outcomes = []

  def __call__(self, params) -> dict[str, float]:
    """Returns the metrics, named `dev/...`."""
    answerer = QuestionAnswerer(
      dataclasses.replace(self._model, params=params),
      EditableCorpus(
        store=self._store,
        loaded=self._loaded(),
        tokenizer=self._store.tokenizer,
        passage_length=self._passage_length,
      ),
      batch_size=self._questions.asking.batch_size,
    )
    system = System(self._store, {}, answerer.retrieve, answerer.answer)
    self._outcomes = self._questions.ask(system)
    scores = self._questions.scored(self._outcomes, system).scores
    return {f"dev/{name}": float(value) for name, value in open_qa.summary(scores).items()}

  def samples(self) -> str:
    """Returns the first questions with their latest answers and best passages as Markdown."""
    return "\n\n".join(
      _table(
        outcome.question.text,
        outcome.prediction,
        [*zip(outcome.passage_ids, outcome.scores, strict=True)][:_SAMPLE_PASSAGES],
        store=self._store,
      )
      for outcome in self._outcomes[:_SAMPLES]
    )


def retrieved_samples(
  batch: RetrievedBatch, *, tokenizer: WordPieces, store: StoredPassages
) -> str:
  """Returns the first queries of a batch, their masked words, and tables of their passages."""
  queries, texts = batch.queries, []
  for row in range(min(_SAMPLES, len(batch.passage_ids_BxK))):
    ids = np.asarray(queries.query.ids[row])[np.asarray(queries.query.mask[row])][1:-1]
    wanted = queries.mlm_targets_BxM[row][queries.mlm_weights_BxM[row] > 0]
    passages = zip(batch.passage_ids_BxK[row].tolist(), batch.stale_scores_BxK[row], strict=True)
    texts.append(_table(tokenizer.decode(ids), tokenizer.decode(wanted), passages, store=store))
  return "\n\n".join(texts)


def _table(
  query: str, answer: str, passages: Iterable[tuple[int, float]], *, store: StoredPassages
) -> str:
  """Returns a query, its answer, and a table of its passages except those with negative ids."""
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
