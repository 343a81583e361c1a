"""What every training job does the same way: mesh, sharded state, warm start, checkpoints, loop."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import flax.traverse_util
import jax.numpy as jnp

from realm_jax import object_store, processes
from realm_jax.data import batches
from realm_jax.retrieval.index_refresher import IndexRefresher
from realm_jax.retrieval.passage_finder import PassageFinder
from realm_jax.retrieval.retrieved_batches import RetrievedBatches
from realm_jax.runs import resumption
from realm_jax.runs.supervisor import STOPPED
from realm_jax.runs.swap_log import SwapLog
from realm_jax.runs.training_config import RunConfig
from realm_jax.saved import saved_models
from realm_jax.training import checkpoints, metric_writers, train_loop
from realm_jax.training.alarms import AlarmSettings
from realm_jax.training.best_checkpoint import BestCheckpoint
from realm_jax.training.train_program import TrainProgram

CHECKPOINTS = "checkpoints"


@dataclasses.dataclass(frozen=True)
class WarmStart:
  """Parameters to begin with.

  Attributes:
    checkpoints: Directory of checkpoints; the newest is used.
    parts: Pairs of a path in this model's parameters and one in the checkpoint's, joined by "/".
  """

  checkpoints: str
  parts: Sequence[tuple[str, str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
  """What is measured between two steps.

  Attributes:
    figures: Returns figures of the parameters.
    every: Steps between two evaluations; the last step has one as well.
    best: Keeps the parameters that were evaluated best, if it is there.
  """

  figures: Callable[[dict], dict[str, float]]
  every: int
  best: BestCheckpoint | None = None


class TrainingRun:
  """A training in a working directory: new, warm-started or continued; a context manager.

  Args:
    workdir: Holds `checkpoints/`, `metrics.jsonl` and TensorBoard's files.
    program: How the training begins and steps.
    config: How long it runs, and what it writes.
    description: Of the model, a dataclass with `to_json` and `from_json`; every checkpoint says it.
    batch_settings: Settings that determine the batches; see `resumption.changes`.
    warm_starts: Where a new run takes parameters from.
    alarm_settings: When figures are alarming.

  Attributes:
    mesh: Of all devices of all processes.
    batch_sharding: Of every array of a batch.
    state: The train state, on the mesh.
    resumed: The checkpoint that the run continues, or None.
    identity: Tells it from other runs.
    logs: Local directory of what the run appends to; the working directory unless that lies in an
      object store.

  Raises:
    ValueError: If the run that is there has another model or other batches.
  """

  def __init__(
    self,
    workdir: str,
    *,
    program: TrainProgram,
    config: RunConfig,
    description,
    batch_settings: Mapping,
    warm_starts: Sequence[WarmStart] = (),
    alarm_settings: AlarmSettings = AlarmSettings(),
  ):
    self.workdir = workdir
    self._config = config
    self.mesh = program.mesh
    self.batch_sharding = program.batch_sharding
    self._steps_from = program.steps_from
    directory = os.path.join(workdir, CHECKPOINTS)
    self._checkpointer = checkpoints.Checkpointer(directory, keep=config.keep_checkpoints)
    self.resumed = self._checkpointer.restore(program.abstract_state)
    self.identity = checkpoints.run_of(directory)
    self._metadata = {
      "model": description.to_json(),
      "run": self.identity.name,
      "batches": dict(batch_settings),
    }
    self._continued = None
    if self.resumed is not None:
      saved_models.check_same_run(self.resumed.metadata, description, workdir)
      changed = resumption.changes(
        self.resumed.metadata.get("batches"),
        batch_settings,
        allowed=config.allow_changes,
        workdir=workdir,
      )
      if self.resumed.input and not changed:
        self._continued = self.resumed.input
      self.state = self.resumed.state
    else:
      self.state = program.new_state()
      for warm_start in warm_starts:
        self.state = dataclasses.replace(
          self.state,
          params=warm_started(self.state.params, program.abstract_state.params, warm_start),
        )
    self.logs, self._mirror = workdir, None
    if processes.is_first() and object_store.is_remote(workdir):
      self._mirror = object_store.MirroredLogs(workdir)
      self.logs = self._mirror.directory
    self._writer = metric_writers.make_writer(
      self.logs,
      step=self.step,
      first_process=processes.is_first(),
      alarm_settings=alarm_settings,
    )
    self._opened = contextlib.ExitStack()
    self._stop = train_loop.StopSignal()
    self._exchange = processes.Exchange()

  def __enter__(self) -> "TrainingRun":
    self._opened.enter_context(self._stop)
    if self._mirror is not None:
      self._opened.callback(self._mirror.close)
    self._opened.callback(self._writer.close)
    self._opened.callback(self._checkpointer.close)
    return self

  def __exit__(self, kind, *_):
    """Ends the process with `STOPPED` if the run was told to stop before its last step."""
    self._opened.close()
    if kind is None and self.step < self._config.num_steps:
      raise SystemExit(STOPPED)

  @property
  def step(self) -> int:
    """Steps taken."""
    return int(self.state.step)

  def stopped(self) -> bool:
    """Returns whether any process was told to stop; all must call it equally often."""
    stops = self._exchange([self._stop()])
    return stops is not None and bool(stops.any())

  def place(self, batch):
    """Splits a batch over the mesh; every process gives its own rows."""
    return processes.place(batch, self.batch_sharding)

  def save_start(self) -> None:
    """Saves a new run's first parameters, of which an index builder makes the first generation."""
    if self.resumed is None:
      self._save(0, self.state, input={}, metadata={})

  def wait_for_checkpoint(self) -> None:
    """Waits until the checkpoint under way is on disk."""
    self._checkpointer.wait()

  def retrieved_batches(
    self,
    queries: Iterator,
    *,
    retriever: PassageFinder,
    refresher: IndexRefresher,
    teach: Callable[[Any], tuple[Any, float]] | None = None,
  ) -> RetrievedBatches:
    """Returns the batches of queries; notes in `swaps.jsonl` which generations they come from.

    Args:
      queries: Yields the queries of a batch and figures about their making.
      retriever: Finds their passages.
      refresher: Gives the generations; its current one is in the retriever.
      teach: See `RetrievedBatches`.
    """
    swaps = SwapLog(self.logs, step=self.step)
    swaps.write(self.step, refresher.current)
    return RetrievedBatches(
      queries,
      retriever=retriever,
      refresher=refresher,
      place=self.place,
      first_step=self.step,
      on_swap=swaps.write,
      stop=self.stopped,
      teach=teach,
    )

  def train(
    self,
    source: train_loop.BatchSource,
    features: batches.Batches,
    *,
    metadata: Callable[[], Mapping] = dict,
    evaluation: Evaluation | None = None,
    samples: Callable[[], str] | None = None,
  ) -> None:
    """Trains to the end or until stopped, and saves what was reached.

    Args:
      source: Of batches.
      features: What the source takes from; it is put where the checkpoint left it.
      metadata: Returns what a checkpoint says beside its model.
      evaluation: What is measured on the way; None for nothing.
      samples: Returns examples as Markdown, written at each evaluation; where nothing is evaluated,
        at each checkpoint.
    """
    num_steps, checkpoint_every = self._config.num_steps, self._config.checkpoint_every

    def evaluated(step: int) -> bool:
      return evaluation is not None and (step % evaluation.every == 0 or step == num_steps)

    def figures(step: int, state) -> dict[str, float]:
      if evaluation is None or not evaluated(step):
        return {}
      found = evaluation.figures(state.params)
      if evaluation.best is not None:
        said = {**self._metadata, **metadata()}
        evaluation.best.offer(step, state.params, figures=found, metadata=said)
      return found

    def save(step: int, state) -> None:
      position = {
        name: value
        for part in processes.gather(features.position())
        for name, value in part.items()
      }
      whole = {"position": position, "batch": processes.gather_rows(source.in_flight())}
      self._save(step, state, input=whole, metadata=metadata())

    def save_in_turn(step: int, state) -> None:
      if step % checkpoint_every == 0:
        save(step, state)

    def write_samples(step: int, state) -> None:
      del state
      due = step % checkpoint_every == 0 if evaluation is None else evaluated(step)
      if samples is not None and due:
        self._writer.write_texts(step, {"samples/retrieved": samples()})

    self.state = train_loop.train(
      self.state,
      self._first_batch(source, features),
      train_step=self._steps_from(self.step),
      source=source,
      num_steps=num_steps,
      hooks=[write_samples, save_in_turn],
      writer=self._writer,
      log_every=self._config.log_every,
      stop=self.stopped,
      log_also=lambda step: step % checkpoint_every == 0 or evaluated(step),
      evaluate=figures,
    )
    save(self.step, self.state)
    self.wait_for_checkpoint()

  def _first_batch(self, source: train_loop.BatchSource, features: batches.Batches):
    """Returns the batch in flight of the checkpoint continued, or the first one of its data."""
    if self._continued is not None:
      features.restore(self._continued["position"])
      rows = self._continued["batch"]
      return source.resume({name: processes.own_rows(value) for name, value in rows.items()})
    source.begin(self.state.params, self.state.teaching)
    batch, _ = source.finish()
    return batch

  def _save(self, step: int, state, *, input: dict, metadata: Mapping) -> None:
    if self._mirror is not None:
      # A run that goes on from here finds every row up to here.
      self._writer.flush()
      self._mirror.flush()
    self._checkpointer.save(step, state, input=input, metadata={**self._metadata, **metadata})


def warm_started(params: dict, abstract_params: dict, warm_start: WarmStart) -> dict:
  """Replaces parts of the parameters by those of a checkpoint."""
  path = checkpoints.resolve(warm_start.checkpoints)
  flat = flax.traverse_util.flatten_dict(params, sep="/")
  abstract = flax.traverse_util.flatten_dict(abstract_params, sep="/")
  wanted = {}
  for here, there in warm_start.parts:
    for name in flat:
      if name.startswith(here + "/"):
        wanted[name] = there + name.removeprefix(here)
  restored = checkpoints.restore_params(
    path, flax.traverse_util.unflatten_dict({wanted[n]: abstract[n] for n in wanted}, sep="/")
  )
  saved: dict[str, Any] = flax.traverse_util.flatten_dict(restored, sep="/")
  # Copies, because two places may take the same array and the state's buffers are donated.
  flat.update({name: jnp.copy(saved[source]) for name, source in wanted.items()})
  return flax.traverse_util.unflatten_dict(flat, sep="/")
