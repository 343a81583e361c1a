"""Trainers for t5x: publish checkpoints that realm_jax reads, and retrieve before each step."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import flax.core
import jax
from jax.sharding import NamedSharding
from t5x import trainer as t5x_trainer

from realm_jax.checkpoints import orbax_files
from realm_jax.checkpoints.opening import PublishedGenerations
from realm_jax.devices import processes
from realm_jax.devices.datatypes import named_arrays
from realm_jax.foundations import json_fields
from realm_jax.models.encoder import query_encoder
from realm_jax.retrieval.index_refresher import IndexRefresher, RefreshConfig
from realm_jax.retrieval.retriever import Retriever
from realm_jax.t5x_adapter import features
from realm_jax.t5x_adapter.models import PretrainingModel, step_metrics
from realm_jax.training.run.batch_sources import RetrievedBatches
from realm_jax.training.run.metric_writers import SwapLog
from realm_jax.training.run.starts import begun
from realm_jax.training.run.training_run import CHECKPOINTS


class RetrievingTrainer(t5x_trainer.Trainer):
  """t5x's trainer, which also retrieves passages and publishes its parameters.

  It retrieves the passages of step t+1 while step t runs, and swaps generations between steps.
  Between two calls of `train` nothing is in flight, so that t5x's checkpoints determine the next
  step; the first step of each call (every `stats_period` steps) waits for its passages.

  Parameters are published in the layout of realm_jax, in `checkpoints/` of the model directory,
  next to t5x's own checkpoints, the only ones that t5x resumes from. The index builder follows
  them. A new run first applies the model's warm starts.

  Args:
    model: The model of the pre-training.
    index: Directory of the index generations.
    generation: The generation to stay with; None follows the newest.
    publish_every: Steps between published checkpoints; the first and last are published too.
    keep_published: Number of published checkpoints to keep.
    trainer: Arguments of t5x's trainer. Its `learning_rate_fn` is only reported if the optimizer
      has a schedule of its own.
  """

  def __init__(
    self,
    model: PretrainingModel,
    *,
    index: str,
    generation: int | None = None,
    publish_every: int,
    refresh: RefreshConfig = RefreshConfig(),
    keep_published: int = 5,
    **trainer,
  ):
    num_microbatches, summary_dir = trainer["num_microbatches"], trainer["summary_dir"]
    if (num_microbatches or 1) != 1:
      raise ValueError(
        f"num_microbatches={num_microbatches} would change the loss, because t5x computes it for "
        "each microbatch alone; set the model's accumulate_steps instead"
      )
    super().__init__(model=model, **trainer)
    self._opened: RetrievedBatches | None = None
    self._answering: Retriever  # which proposes nothing
    self._model_dir = summary_dir
    self._publish_every = publish_every
    directory = os.path.join(summary_dir, CHECKPOINTS)
    self._published: orbax_files.Checkpointer | None
    self._published = orbax_files.Checkpointer(directory, keep=keep_published)
    self.run = orbax_files.run_of(directory)
    self._host_step = int(self.train_state.step)
    if self._host_step == 0:
      self._take_up_starts()
    if self._published.latest_step() is None:
      # The index builder builds the first generation from it.
      self._publish(self._published)
    partitioner = trainer["partitioner"]
    self._sharding = NamedSharding(partitioner.mesh, partitioner.data_partition_spec)
    self._wanted = generation
    watch = self._wanted is None
    generations = PublishedGenerations(
      index=index,
      description=model.description,
      searcher=refresh.searcher,
      run=self.run,
      other_runs=refresh.other_runs if watch else "accept",
    )
    self._watch = contextlib.ExitStack()
    self._refresher = self._watch.enter_context(
      IndexRefresher(generations, config=refresh, watch=watch)
    )
    self._send: Callable[..., Any]  # t5x's step on the devices
    self._batch = None  # the next step's batch, with metrics of its retrieval

  def train(self, batch_iter: Iterator, num_steps: int, start_step: int | None = None):
    """Trains some steps, and publishes the parameters if they are due.

    The first call waits for the first generation of the index.
    """
    self._open().examples = batch_iter
    self._use(self._compiled_train_step or self._partitioned_train_step)
    before = self._host_step
    summary = super().train(iter(range(num_steps - 1, -1, -1)), num_steps, start_step)
    self._host_step = before + num_steps
    due = self._host_step // self._publish_every > before // self._publish_every
    if due and self._published is not None:
      self._publish(self._published)
    return summary

  def compile_train(self, batch: features.Features) -> None:
    """Compiles the step for batches like the one retrieved for `batch`."""
    self._open()
    super().compile_train(processes.put_on_devices(self._retrieved(batch), self._sharding))

  def eval(self, batch_iters: Mapping[str, Iterator]) -> Mapping:
    """Evaluates with passages from the generation in use."""
    self._open()
    return super().eval({name: map(self._retrieved, it) for name, it in batch_iters.items()})

  def compile_eval(self, batches: Mapping[str, features.Features]) -> None:
    """Compiles the evaluation for batches like those retrieved for `batches`."""
    self._open()
    super().compile_eval({name: self._retrieved(batch) for name, batch in batches.items()})

  def close(self) -> None:
    """Publishes the last parameters and waits until everything is written."""
    self._watch.close()
    if self._published is not None:
      published, self._published = self._published, None
      self._publish(published)
      published.close()
    super().close()

  def metadata(self) -> dict:
    """Returns the JSON values of a published checkpoint."""
    generation = {"generation": self._refresher.current.generation} if self._opened else {}
    model = json_fields.as_json(self._model.description)
    return {"model": model, "run": self.run.name, **generation}

  def _publish(self, published: orbax_files.Checkpointer) -> None:
    params = flax.core.unfreeze(self.train_state.params)
    published.save(self._host_step, {"params": params}, input={}, metadata=self.metadata())

  def _take_up_starts(self) -> None:
    params = flax.core.unfreeze(self.train_state.params)
    abstract = jax.tree.map(
      lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), params
    )
    params = begun(params, abstract, self._model.starts)
    self.train_state = self.train_state.replace_params(flax.core.freeze(params))

  def _open(self) -> RetrievedBatches:
    """Waits for the first generation and opens its search, once."""
    if self._opened is not None:
      return self._opened
    self._refresher.first(wanted=self._wanted, stop=lambda: False)
    loaded = self._refresher.current
    swaps = SwapLog(self._model_dir, step=self._host_step)
    swaps.write(self._host_step, loaded)
    encoder, retrieval = self._model.description.dual_encoder, self._model.retrieval
    put = functools.partial(processes.put_on_devices, sharding=self._sharding)
    retriever = Retriever(
      encode_query=query_encoder(encoder, put, sharding=self._sharding),
      searcher=loaded.searcher,
      store=self._model.store,
      config=retrieval,
    )
    self._answering = dataclasses.replace(retriever, config=retriever.config.answering)
    self._opened = RetrievedBatches(
      None,  # each call of `train` has its own
      lambda examples: (features.masked_queries(examples), {}),
      retriever=retriever,
      refresher=self._refresher,
      put_on_devices=lambda batch: put(named_arrays(batch)),
      first_step=self._host_step,
      on_swap=swaps.write,
      stop=lambda: self.stop_training,
    )
    return self._opened

  def _retrieved(self, batch: features.Features) -> dict:
    """Finds the passages of a batch with the current parameters, on the host, as when answering."""
    self._open()
    finder = self._answering
    finder.use(self._refresher.current)
    begun = finder.begin(self.train_state.params, features.masked_queries(batch))
    return named_arrays(finder.finish(begun)[0])

  def _use(self, send) -> None:
    """Wraps t5x's step with retrieval, without t5x's knowledge."""
    if send != self._step:
      self._send = send
      self._compiled_train_step = self._step

  def _step(self, train_state, steps_left: int):
    source = self._open()
    if self._batch is None:
      source.begin(train_state.params)
      self._batch = source.finish()
    batch, metrics = self._batch
    if steps_left:
      source.begin(train_state.params)
    train_state, of_step = self._send(train_state, batch)
    self._batch = source.finish() if steps_left else None
    return train_state, {**of_step, **step_metrics(metrics)}
