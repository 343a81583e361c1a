"""Trains the dual encoder on the inverse cloze task, the warm start of REALM."""

import functools
import os

from realm_jax import partitioning, wordpieces
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoder, DualEncoderConfig
from realm_jax.runs import objectives
from realm_jax.runs.example_sources import InverseClozeExamples
from realm_jax.runs.training_run import TrainingRun, WarmStart
from realm_jax.saved import saved_models
from realm_jax.training import train_loop
from realm_jax.training.optimizer import OptimizerConfig


def pretrain_ict(
  *,
  workdir: str,
  passages: str,
  examples: str | None = None,
  dual_encoder: DualEncoderConfig = DualEncoderConfig(bert=BertConfig()),
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-4, num_steps=100_000),
  num_steps: int = 100_000,
  batch_size: int = 4096,
  query_length: int = 64,
  passage_length: int = 288,
  removal_rate: float = 0.9,
  hide_salient_spans: bool = False,
  neighbours: int = 1,
  warm_start: WarmStart | None = None,
  seed: int = 0,
  data_streams: int | None = None,
  accumulate_steps: int = 1,
  model_parallel: int = 1,
  layout: partitioning.Layout = "replicated",
  log_every: int = 100,
  checkpoint_every: int = 1000,
  keep_checkpoints: int = 5,
) -> None:
  """Trains with the global in-batch softmax (Lee et al. 2019) and writes checkpoints.

  Args:
    workdir: directory of the run; a run that is there is continued.
    passages: directory of a prepared corpus.
    examples: directory of examples made of it by `realm prepare_examples`, which need no
      TensorFlow; none: they are made while training.
    dual_encoder: the model.
    optimizer: its settings; its schedule should have `num_steps`.
    num_steps: steps of the whole run.
    batch_size: passages a step; each is a negative for all the other queries.
    query_length: wordpieces of a pseudo-query.
    passage_length: wordpieces of a passage.
    removal_rate: how often the pseudo-query's sentence leaves its passage.
    hide_salient_spans: whether salient spans of a pseudo-query are masked.
    neighbours: passages that follow one another in the corpus and come into a batch together, as
      each other's negatives; 1: all are shuffled. The released code had some 341.
    warm_start: checkpoint to take parameters from; none: start from random ones.
    seed: of parameters, data order and dropout.
    data_streams: parts of the corpus read side by side; another number gives other batches, another
      number of processes does not; none: one a process.
    accumulate_steps: parts of a batch computed one after the other.
    model_parallel: devices that share one copy of the model.
    layout: "fully_sharded" splits parameters and optimizer over all devices, for large models.
    log_every: steps between two writes of metrics.
    checkpoint_every: steps between two checkpoints.
    keep_checkpoints: checkpoints kept.

  Raises:
    FileNotFoundError: if the corpus is missing.
    ValueError: if sizes do not fit each other.
  """
  vocabulary = os.path.join(passages, "vocabulary")
  pieces = wordpieces.load(vocabulary)
  saved_models.check_sizes(
    pieces,
    {"dual_encoder": dual_encoder.bert},
    {"dual_encoder": {"query_length": query_length, "passage_length": passage_length}},
  )
  starts = [] if warm_start is None else [warm_start]
  saved_models.check_warm_starts([start.checkpoints for start in starts], pieces)
  made_of = InverseClozeExamples(
    source=passages if examples is None else examples,
    vocabulary=vocabulary,
    query_length=query_length,
    passage_length=passage_length,
    removal_rate=removal_rate,
    hide_salient_spans=hide_salient_spans,
    neighbours=neighbours,
  )
  features = batches.Streams(
    functools.partial(made_of.open, seed=seed, training=True),
    num_streams=data_streams,
    batch_size=batch_size,
  )
  model = DualEncoder(dual_encoder)

  def init_params(key):
    return {"dual_encoder": saved_models.init_dual_encoder(model, key)}

  description = saved_models.ModelDescription(
    dual_encoder=dual_encoder,
    query_length=query_length,
    passage_length=passage_length,
    vocabulary_digest=pieces.digest,
    corpus_fingerprint=PassageStore(passages).fingerprint,
  )
  with TrainingRun(
    workdir=workdir,
    init_params=init_params,
    objective=objectives.pairs(model),
    optimizer=optimizer,
    warm_starts=starts,
    seed=seed,
    accumulate_steps=accumulate_steps,
    model_parallel=model_parallel,
    layout=layout,
    keep_checkpoints=keep_checkpoints,
  ) as run:
    if run.resumed is not None:
      saved_models.check_same_run(run.resumed.metadata, description, workdir)
    source = train_loop.PlainBatches(features, place=run.place)
    run.train(
      run.first_batch(source, features),
      source=source,
      num_steps=num_steps,
      log_every=log_every,
      checkpoint_every=checkpoint_every,
      input=lambda: {"position": features.position(), "batch": source.in_flight()},
      metadata=lambda: {"model": description.to_json()},
    )
