"""Pre-trains the dual encoder and the knowledge-augmented encoder over retrieved passages."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from absl import logging

from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.best_checkpoint import BEST, BestCheckpoint
from realm_jax.checkpoints.matching_generations import generation_made_by
from realm_jax.checkpoints.opening import open_corpus
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches
from realm_jax.devices.datatypes import MaskedQueries, RetrievedBatch
from realm_jax.models.encoder import query_encoder
from realm_jax.objectives.contrastive import Contrastive
from realm_jax.retrieval.retriever import Retriever
from realm_jax.training.batch_sources import RetrievedBatches
from realm_jax.training.evaluation import FixedEvaluation, retrieved_samples
from realm_jax.training.examples import Examples
from realm_jax.training.pretraining import Pretraining
from realm_jax.training.training_run import Evaluation, TrainingRun, WarmStart


def pretrain(
  *,
  workdir: str,
  corpus: str,
  passages: str,
  index: str,
  pretraining: Pretraining = Pretraining(),
  retriever_checkpoints: str | None = None,
  warm_start: str | None = None,
  warm_starts: Sequence[WarmStart] = (),
  eval_corpus: str | None = None,
) -> None:
  """Trains with the marginal likelihood of masked spans (Guu et al. 2020) and hot-swaps the index.

  Args:
    workdir: Directory of the run; an existing run is resumed.
    corpus: Directory of the tagged training corpus, from `realm prepare_corpus`, or of examples
      from `realm prepare_examples`, which need no TensorFlow.
    passages: Directory of the knowledge corpus, from `realm prepare_corpus`.
    index: Directory of the index generations, from `realm build_index`.
    pretraining: The configuration of the training.
    retriever_checkpoints: Checkpoints of `realm train_retriever`, from which a new run takes the
      dual encoder.
    warm_start: Checkpoints of another pre-training that a new run takes all parameters from.
    warm_starts: Checkpoints that a new run takes parts of its parameters from.
    eval_corpus: Directory of another tagged corpus, or of examples prepared in corpus order, to
      evaluate on with fixed masks; None disables evaluation. `WORKDIR/best` gets the checkpoint
      with the lowest loss on it, which may be the warm start.

  Raises:
    FileNotFoundError: If a corpus is missing.
    ValueError: If corpora, vocabulary, model, lengths and generation do not match each other, or
      settings contradict each other.
  """
  terms = [term for _, term in pretraining.objective.weighted_terms()]
  if any(isinstance(term, Contrastive) for term in terms):
    raise ValueError(
      "the objective has a Contrastive term, but a pre-training has no pairs; `realm "
      "train_retriever` learns from pairs, and a loop of your own from both"
    )
  starts = [
    *warm_starts,
    *_parts(retriever_checkpoints, "dual_encoder"),
    *_parts(warm_start, "dual_encoder", "knowledge_augmented_encoder"),
  ]
  store = open_corpus(passages, warm_starts=[start.checkpoints for start in starts])
  pretraining.check_reachable()
  description = pretraining.describe(store)
  description.check_sizes(store.vocabulary)
  examples = Examples(data=pretraining.data, source=corpus, vocabulary=store.vocabulary_directory)
  # Fails on missing examples before waiting for an index.
  features = examples.streams(seed=pretraining.run.seed)
  batch_settings = examples.batch_settings(seed=pretraining.run.seed)
  posterior = pretraining.retrieval.posterior
  batch_settings |= {"posterior": None if posterior is None else repr(posterior)}
  from_corpus = functools.cache(lambda: description.from_corpus(store))
  with TrainingRun(
    workdir,
    program=pretraining.program(),
    config=pretraining,
    description=description,
    batch_settings=batch_settings,
    warm_starts=starts,
    from_corpus=from_corpus,
    min_entropy=pretraining.min_entropy,
  ) as run:
    run.save_start()
    if run.resumed is None:
      started = {here.partition("/")[0] for start in starts for here, _ in start.parts}
      _warn_of_what_cannot_learn(pretraining, {*started, *from_corpus()})
    if pretraining.run.num_steps == 0:
      return
    training = _Training(
      run=run,
      pretraining=pretraining,
      examples=examples,
      store=store,
      features=features,
    )
    training.on_index(index, eval_corpus=eval_corpus)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Training:
  """A run that has begun, with its data."""

  run: TrainingRun
  pretraining: Pretraining
  examples: Examples
  store: PassageStore
  features: batches.Streams

  def on_index(self, index: str, *, eval_corpus: str | None) -> None:
    """Trains on the generations of an index."""
    run, pretraining = self.run, self.pretraining
    wanted = pretraining.generation
    if wanted is not None and not pretraining.dual_encoder_learns:
      # The frozen dual encoder must have built it, because its scores are never recomputed.
      encoder, params = pretraining.model.dual_encoder, run.state.params["dual_encoder"]
      digest = saved_models.passages_digest(encoder, params)
      generation_made_by(digest, index, generation=wanted)
    followed = run.follow(
      index, refresh=pretraining.refresh, wanted=wanted, spread=pretraining.spread_index
    )
    with contextlib.ExitStack() as stack:
      refresher = stack.enter_context(followed)
      if not refresher.first(wanted=wanted, stop=run.stopped):
        return
      retriever = Retriever(
        encode_query=query_encoder(
          pretraining.model.dual_encoder, run.put_on_devices, sharding=run.batch_sharding
        ),
        searcher=refresher.current.searcher,
        store=self.store,
        config=pretraining.retrieval,
        rescoring=saved_models.rescoring(
          pretraining.model.dual_encoder,
          self.store,
          passage_length=pretraining.retrieval.passage_length,
        ),
      )
      source = run.retrieved_batches(
        self.features, self._queries, retriever=retriever, refresher=refresher
      )
      evaluated = dataclasses.replace(retriever, config=pretraining.retrieval.answering)

      def retrieve(params: dict, queries: MaskedQueries) -> RetrievedBatch:
        evaluated.use(refresher.current)
        return evaluated.finish(evaluated.begin(params, queries))[0]

      best_of = self._train(
        source,
        metadata=lambda: {"generation": refresher.current.generation},
        eval_corpus=eval_corpus,
        retrieve=retrieve,
      )
      self._print(f"{refresher.swaps} generations swapped in{best_of}")

  def _train(
    self,
    source: RetrievedBatches,
    *,
    metadata: Callable[[], Mapping],
    eval_corpus: str | None,
    retrieve: Callable[[dict, MaskedQueries], RetrievedBatch],
  ) -> str:
    """Trains on a source; evaluates on a corpus, if any, and returns which checkpoint was best."""
    run, fixed, evaluation = self.run, None, None
    with contextlib.ExitStack() as stack:
      if eval_corpus is not None:
        fixed = self._fixed_evaluation(eval_corpus, retrieve)
        best = BestCheckpoint(os.path.join(run.workdir, BEST), metric="eval/loss", better="lower")
        evaluation = Evaluation(
          metrics=fixed,
          every=self.pretraining.eval_every,
          best=stack.enter_context(best),
          at_start=True,
        )
      run.train(
        source,
        metadata=metadata,
        evaluation=evaluation,
        samples=lambda: self._samples(source.batch if fixed is None else fixed.first_batch),
      )
      return "" if evaluation is None else _best(evaluation.best)

  def _fixed_evaluation(
    self, eval_corpus: str, retrieve: Callable[[dict, MaskedQueries], RetrievedBatch]
  ) -> FixedEvaluation:
    return FixedEvaluation(
      dataclasses.replace(self.examples, source=eval_corpus).open(
        batch_size=self.pretraining.data.batch_size, seed=0, training=False
      ),
      max_batches=self.pretraining.eval_steps,
      retrieve=retrieve,
      metrics=self.pretraining.evaluation_program,
      put_on_devices=self.run.put_on_devices,
    )

  def _queries(self, features: batches.Features) -> tuple[MaskedQueries, dict[str, float]]:
    """Returns a batch of queries with the counts of examples rejected so far, by reason."""
    by_stream = np.split(features["rejections"], self.features.num_own)
    rejected = np.sum([rows.max(axis=0) for rows in by_stream], axis=0)
    figures = {
      f"data/rejected_{reason}": float(count)
      for reason, count in zip(batches.REJECTIONS, rejected, strict=True)
    }
    return batches.masked_queries(features), figures

  def _samples(self, batch: RetrievedBatch) -> str:
    return retrieved_samples(batch, tokenizer=self.store.vocabulary, store=self.store)

  def _print(self, what: str) -> None:
    print(f"{self.run.workdir}: step {self.run.step}, {what}", flush=True)


def _best(best: BestCheckpoint) -> str:
  if best.step is None:
    return ""
  figure = f"{BEST}/{best.step} (eval/loss {best.value:.4f})"
  if best.step == 0:
    return f"; nothing is better than the warm start, {figure}: see the alarms above"
  return f"; the best is {figure}"


def _parts(checkpoints: str | None, *parts: str) -> list[WarmStart]:
  if checkpoints is None:
    return []
  return [WarmStart(checkpoints, [(part, part) for part in parts])]


def _warn_of_what_cannot_learn(pretraining: Pretraining, started: Collection[str]) -> None:
  if not pretraining.dual_encoder_learns:
    return
  if "dual_encoder" not in started:
    logging.warning(
      "the dual encoder starts from random weights, so what it retrieves cannot help the reader; "
      "give --retriever_checkpoints of `realm train_retriever`"
    )
  encoder = pretraining.model.dual_encoder
  if encoder.unit_length and encoder.temperature == 1.0:
    logging.warning(
      "temperature=1.0 with embeddings of unit length: scores lie between -1 and 1, so p(z|x) is "
      "almost the same for all passages; give --temperature, such as 0.05"
    )
  if "knowledge_augmented_encoder" not in started:
    logging.warning(
      "the reader starts from random weights: a reader that cannot read makes the dual encoder "
      "unlearn its warm start; give --warm_start of a reader that was trained with "
      "--frozen_parts=dual_encoder first"
    )
