"""Pre-trains dual encoder and knowledge-augmented encoder together, over retrieved passages."""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Literal

import jax
import numpy as np

from realm_jax import partitioning, wordpieces
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.retrieval.index_refresher import IndexRefresher, RefreshConfig
from realm_jax.retrieval.retrieved_batches import RetrievedBatches
from realm_jax.retrieval.retriever import RetrievalConfig, Retriever
from realm_jax.runs import retrieved_samples
from realm_jax.runs.example_sources import MaskedQueryExamples
from realm_jax.runs.fixed_evaluation import FixedEvaluation
from realm_jax.runs.pretraining import Pretraining
from realm_jax.runs.training_run import TrainingRun, WarmStart
from realm_jax.saved import saved_models
from realm_jax.saved.retrieval_setup import PublishedGenerations, SwapLog, query_encoder
from realm_jax.training.alarms import AlarmSettings
from realm_jax.training.optimizer import OptimizerConfig


def pretrain(
  *,
  workdir: str,
  corpus: str,
  passages: str,
  index: str,
  dual_encoder: DualEncoderConfig = DualEncoderConfig(bert=BertConfig()),
  knowledge_augmented_encoder: BertConfig = BertConfig(),
  retrieval: RetrievalConfig = RetrievalConfig(),
  refresh: RefreshConfig = RefreshConfig(),
  optimizer: OptimizerConfig = OptimizerConfig(),
  ict_checkpoints: str | None = None,
  warm_start: str | None = None,
  warm_starts: Sequence[WarmStart] = (),
  num_steps: int = 200_000,
  batch_size: int = 512,
  query_length: int = 96,
  max_masks: int = 10,
  mask: batches.Masking = "salient_span",
  marginalize: Literal["span", "token"] = "span",
  generation: int | None = None,
  spread_index: bool = False,
  seed: int = 0,
  data_streams: int | None = None,
  accumulate_steps: int = 1,
  model_parallel: int = 1,
  layout: partitioning.Layout = "replicated",
  log_every: int = 100,
  checkpoint_every: int = 500,
  keep_checkpoints: int = 5,
  eval_corpus: str | None = None,
  eval_every: int = 1000,
  eval_steps: int = 20,
  instead: Callable[[Pretraining], None] | None = None,
) -> None:
  """Trains with the marginal likelihood of masked spans (Guu et al. 2020) and hot-swaps the index.

  Args:
    workdir: directory of the run; a run that is there is continued.
    corpus: directory of the tagged training corpus, from `realm prepare_corpus`; or of examples
      made of it by `realm prepare_examples`, which need no TensorFlow.
    passages: directory of the knowledge corpus, from `realm prepare_corpus`.
    index: directory of the index generations, from `realm build_index`.
    dual_encoder: the retrieval model.
    knowledge_augmented_encoder: the model that reads query and passage together.
    retrieval: how many passages are read, and how long.
    refresh: how new generations are followed.
    optimizer: its settings; its schedule should have `num_steps`.
    ict_checkpoints: checkpoints of `realm pretrain_ict` that a new run takes the dual encoder from.
    warm_start: checkpoints of another pre-training that a new run takes all parameters from.
    warm_starts: checkpoints that a new run takes parts of its parameters from.
    num_steps: steps of the whole run.
    batch_size: queries a step.
    query_length: wordpieces of a query.
    max_masks: masked wordpieces predicted in a query.
    mask: what is masked.
    marginalize: "span", the paper's sum over passages of a span's probability, or "token", the
      released code's.
    generation: index generation to stay with; none: always the newest.
    spread_index: whether each of several processes holds a part of the index only, for corpora
      beyond the memory of one host; queries are then gathered and answers merged.
    seed: of parameters, data order, masks and dropout.
    data_streams: parts of the corpus read side by side; another number gives other batches, another
      number of processes does not; none: one a process.
    accumulate_steps: parts of a batch computed one after the other.
    model_parallel: devices that share one copy of the model.
    layout: "fully_sharded" splits parameters and optimizer over all devices, for large models.
    log_every: steps between two writes of metrics.
    checkpoint_every: steps between two checkpoints, which the index builder follows.
    keep_checkpoints: checkpoints kept.
    eval_corpus: directory of another tagged corpus, or of examples prepared in its order, whose
      queries, masked alike on every run, are asked between two steps; none: no evaluation.
    eval_every: steps between two evaluations; the last step has one as well.
    eval_steps: batches of an evaluation.
    instead: is given the programs of this training and nothing is trained, as `realm plan` does.

  Raises:
    FileNotFoundError: if a corpus is missing.
    ValueError: if corpora, vocabulary, model and lengths do not fit each other.
  """
  pretraining = Pretraining(
    dual_encoder=dual_encoder,
    knowledge_augmented_encoder=knowledge_augmented_encoder,
    retrieval=retrieval,
    optimizer=optimizer,
    batch_size=batch_size,
    query_length=query_length,
    max_masks=max_masks,
    marginalize=marginalize,
    seed=seed,
    accumulate_steps=accumulate_steps,
    model_parallel=model_parallel,
    layout=layout,
    checkpoint_every=checkpoint_every,
    keep_checkpoints=keep_checkpoints,
  )
  if instead is not None:
    instead(pretraining)
    return
  if generation is None:
    refresh.check_reachable(checkpoint_every=checkpoint_every)
  starts = [
    *warm_starts,
    *_parts(ict_checkpoints, "dual_encoder"),
    *_parts(warm_start, "dual_encoder", "knowledge_augmented_encoder"),
  ]
  store = PassageStore(passages)
  vocabulary = os.path.join(passages, "vocabulary")
  pieces = wordpieces.load(vocabulary)
  saved_models.check_sizes(
    pieces,
    {"dual_encoder": dual_encoder.bert, "knowledge_augmented_encoder": knowledge_augmented_encoder},
    {
      "dual_encoder": {"query_length": query_length, "passage_length": retrieval.passage_length},
      "knowledge_augmented_encoder": {"joint_length": retrieval.joint_length},
    },
  )
  saved_models.check_warm_starts([start.checkpoints for start in starts], pieces)

  examples = MaskedQueryExamples(
    source=corpus,
    vocabulary=vocabulary,
    mask=mask,
    query_length=query_length,
    max_masks=max_masks,
  )
  features = batches.Streams(
    functools.partial(examples.open, seed=seed, training=True),
    num_streams=data_streams,
    batch_size=batch_size,
  )
  description = saved_models.ModelDescription(
    dual_encoder=dual_encoder,
    knowledge_augmented_encoder=knowledge_augmented_encoder,
    retrieval=retrieval,
    query_length=query_length,
    max_masks=max_masks,
    passage_length=retrieval.passage_length,
    vocabulary_digest=pieces.digest,
    corpus_fingerprint=store.fingerprint,
  )
  with TrainingRun(
    workdir=workdir,
    init_params=pretraining.init_params,
    objective=pretraining.objective,
    optimizer=optimizer,
    warm_starts=starts,
    seed=seed,
    accumulate_steps=accumulate_steps,
    model_parallel=model_parallel,
    layout=layout,
    keep_checkpoints=keep_checkpoints,
    # A single passage beside the null passage has all the probability when all is well.
    alarm_settings=AlarmSettings(entropy=0.0) if retrieval.num_passages == 2 else AlarmSettings(),
  ) as run:
    published = PublishedGenerations(
      index,
      description=description,
      spread=spread_index,
      run=run.identity,
      other_runs=refresh.other_runs if generation is None else "accept",
    )
    with IndexRefresher(published, config=refresh, watch=generation is None) as refresher:
      if run.resumed is None:
        # The first checkpoint is what the index builder makes the first generation from.
        run.save(0, run.state, input={}, metadata={"model": description.to_json()})
      else:
        saved_models.check_same_run(run.resumed.metadata, description, workdir)
      if num_steps == 0:
        run.wait_for_checkpoint()
        return
      if not refresher.first(wanted=generation, stop=run.stopped):
        return
      retriever = Retriever(
        encode_query=query_encoder(pretraining.model, run.place, sharding=run.batch_sharding),
        searcher=refresher.current.searcher,
        store=store,
        config=retrieval,
      )
      swaps = SwapLog(run.logs, step=run.step)
      swaps.write(run.step, refresher.current)
      source = RetrievedBatches(
        _queries(features),
        retriever=retriever,
        refresher=refresher,
        place=run.place,
        first_step=run.step,
        on_swap=swaps.write,
        stop=run.stopped,
      )
      evaluation = None
      if eval_corpus is not None:
        evaluation = FixedEvaluation(
          dataclasses.replace(examples, source=eval_corpus).open(
            batch_size=batch_size, seed=0, training=False
          ),
          max_batches=eval_steps,
          retriever=retriever,
          figures=jax.jit(pretraining.figures),
          place=run.place,
        )
      run.train(
        run.first_batch(source, features),
        source=source,
        num_steps=num_steps,
        log_every=log_every,
        checkpoint_every=checkpoint_every,
        input=lambda: {"position": features.position(), "batch": source.in_flight()},
        metadata=lambda: {
          "model": description.to_json(),
          "generation": refresher.current.generation,
        },
        evaluate=evaluation,
        eval_every=eval_every,
        samples=lambda: retrieved_samples.markdown(
          source.batch if evaluation is None else evaluation.first_batch,
          tokenizer=pieces,
          store=store,
        ),
      )
      print(f"{workdir}: step {run.step}, {refresher.swaps} generations swapped in", flush=True)


def _parts(checkpoints: str | None, *parts: str) -> list[WarmStart]:
  if checkpoints is None:
    return []
  return [WarmStart(checkpoints, [(part, part) for part in parts])]


def _queries(features: batches.Streams):
  """Yields each batch of queries with the number of examples rejected so far, by reason."""
  for batch in features:
    by_stream = np.split(batch["rejections"], features.num_own)
    rejected = sum(rows.max(axis=0) for rows in by_stream)
    figures = {
      f"data/rejected_{reason}": float(count)
      for reason, count in zip(batches.REJECTIONS, rejected, strict=True)
    }
    yield batches.masked_queries(batch), figures
