"""Pre-trains the dual encoder and the knowledge-augmented encoder over retrieved passages."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Collection

import numpy as np
from absl import logging

from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.opening import generation_made_by, open_corpus
from realm_jax.checkpoints.orbax_files import BEST, BestCheckpoint
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches
from realm_jax.devices.datatypes import MaskedQueries
from realm_jax.models.encoder import query_encoder
from realm_jax.objectives.contrastive import Contrastive
from realm_jax.retrieval.retriever import Retriever
from realm_jax.training.evaluation import FixedEvaluation, retrieved_samples
from realm_jax.training.examples import Examples
from realm_jax.training.pretraining import PARTS, Pretraining
from realm_jax.training.starts import Starts, read
from realm_jax.training.training_run import Evaluation, TrainingRun


def pretrain(
  *,
  workdir: str,
  corpus: str,
  passages: str,
  index: str,
  pretraining: Pretraining = Pretraining(),
  start: Starts = (),
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
    start: Checkpoints that a new run takes parameters from: CHECKPOINTS for all parts that they
      have, or CHECKPOINTS:dual_encoder; the flag may be repeated.
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
  starts = read(start, parts=PARTS)
  pretraining = pretraining.begun(starts)
  store = open_corpus(passages, starts=[start.checkpoints for start in starts])
  pretraining.check_reachable()
  description = pretraining.describe(store)
  description.check_sizes(store.vocabulary)
  examples = Examples(data=pretraining.data, source=corpus, vocabulary=store.vocabulary_directory)
  # Fails on missing examples before waiting for an index.
  features = examples.streams(seed=pretraining.run.seed)
  batch_settings = examples.batch_settings(seed=pretraining.run.seed)
  posterior = pretraining.retrieval.posterior
  batch_settings |= {"posterior": None if posterior is None else repr(posterior)}
  with TrainingRun(
    workdir,
    program=pretraining.program(lengths=store.length_quantiles()),
    config=pretraining,
    description=description,
    batch_settings=batch_settings,
    starts=starts,
    min_entropy=pretraining.min_entropy,
  ) as run:
    run.save_start()
    if run.resumed is None:
      started = {here.partition("/")[0] for start in starts for here, _ in start.parts}
      _warn_of_what_cannot_learn(pretraining, started)
    if pretraining.run.num_steps == 0:
      return
    _train(
      run,
      pretraining,
      examples=examples,
      features=features,
      store=store,
      index=index,
      eval_corpus=eval_corpus,
    )


def _train(
  run: TrainingRun,
  pretraining: Pretraining,
  *,
  examples: Examples,
  features: batches.Streams,
  store: PassageStore,
  index: str,
  eval_corpus: str | None,
) -> None:
  """Trains on the generations of an index, and evaluates on a corpus, if any."""
  wanted, encoder = pretraining.generation, pretraining.model.dual_encoder
  if wanted is not None and not pretraining.dual_encoder_learns:
    # The frozen dual encoder must have built it, because its scores are never recomputed.
    digest = saved_models.passages_digest(encoder, run.state.params["dual_encoder"])
    generation_made_by(digest, index, generation=wanted)
  followed = run.follow(
    index, refresh=pretraining.refresh, wanted=wanted, spread=pretraining.spread_index
  )
  with contextlib.ExitStack() as stack:
    refresher = stack.enter_context(followed)
    if not refresher.first(wanted=wanted, stop=run.stopped):
      return
    retriever = Retriever(
      encode_query=query_encoder(encoder, run.put_on_devices, sharding=run.batch_sharding),
      searcher=refresher.current.searcher,
      store=store,
      config=pretraining.retrieval,
    )
    source = run.retrieved_batches(
      features,
      functools.partial(_queries, num_streams=features.num_own),
      retriever=retriever,
      refresher=refresher,
    )
    fixed = evaluation = None
    if eval_corpus is not None:
      fixed = FixedEvaluation(
        dataclasses.replace(examples, source=eval_corpus).open(
          batch_size=pretraining.data.batch_size, seed=0, training=False
        ),
        max_batches=pretraining.eval_steps,
        retriever=dataclasses.replace(retriever, config=pretraining.retrieval.answering),
        refresher=refresher,
        program=pretraining.evaluation_program(lengths=store.length_quantiles()),
        put_on_devices=run.put_on_devices,
      )
      best = BestCheckpoint(
        os.path.join(run.workdir, BEST),
        metric="eval/loss",
        better="lower",
        measured_on=fixed.digest,
      )
      evaluation = Evaluation(
        metrics=fixed,
        every=pretraining.eval_every,
        best=stack.enter_context(best),
        at_start=True,
      )

    def samples() -> str:
      batch = source.batch if fixed is None else fixed.first_batch
      return retrieved_samples(batch, tokenizer=store.vocabulary, store=store)

    run.train(
      source,
      metadata=lambda: {"generation": refresher.current.generation},
      evaluation=evaluation,
      samples=samples,
    )
  best_of = "" if evaluation is None else _best(evaluation.best)
  print(
    f"{run.workdir}: step {run.step}, {refresher.swaps} generations swapped in{best_of}", flush=True
  )


def _queries(
  features: batches.Features, *, num_streams: int
) -> tuple[MaskedQueries, dict[str, float]]:
  """Returns a batch of queries with the counts of examples rejected so far, by reason."""
  by_stream = np.split(features["rejections"], num_streams)
  rejected = np.sum([rows.max(axis=0) for rows in by_stream], axis=0)
  metrics = {
    f"data/rejected_{reason}": float(count)
    for reason, count in zip(batches.REJECTIONS, rejected, strict=True)
  }
  return batches.masked_queries(features), metrics


def _best(best: BestCheckpoint) -> str:
  if best.step is None:
    return ""
  figure = f"{BEST}/{best.step} (eval/loss {best.value:.4f})"
  if best.step == 0:
    return f"; nothing is better than the warm start, {figure}: see the alarms above"
  return f"; the best is {figure}"


def _warn_of_what_cannot_learn(pretraining: Pretraining, started: Collection[str]) -> None:
  if not pretraining.dual_encoder_learns:
    return
  posterior = pretraining.retrieval.posterior
  at_random = posterior is None or posterior.embeds  # all that is retrieved
  if "dual_encoder" not in started and at_random and pretraining.run.num_steps:
    logging.warning(
      "the dual encoder starts from random weights, so what it retrieves cannot help the reader; "
      "give --start=CHECKPOINTS of `realm train_retriever`"
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
      "unlearn what it starts with; give --start=CHECKPOINTS of a reader that was trained with "
      "--frozen_parts=dual_encoder first"
    )
