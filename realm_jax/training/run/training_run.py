"""The part common to all training jobs: mesh, sharded state, warm start, checkpoints, loop."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging

from realm_jax.checkpoints import orbax_files, saved_models
from realm_jax.checkpoints.opening import PublishedGenerations, generation_made_by
from realm_jax.checkpoints.orbax_files import BEST, BestCheckpoint
from realm_jax.data.batches import Batches, Features
from realm_jax.devices import directory_lock, processes
from realm_jax.foundations import json_fields, object_store
from realm_jax.launching.stop_signal import STOPPED, StopSignal
from realm_jax.models.encoder import EncoderConfig, query_encoder
from realm_jax.retrieval.index_refresher import IndexRefresher, RefreshConfig
from realm_jax.retrieval.passage_finder import PassageFinder
from realm_jax.text.wordpieces import WordPieces
from realm_jax.training.run import alarms, resumption, train_loop
from realm_jax.training.run.alarms import MIN_ENTROPY, Alarm
from realm_jax.training.run.batch_sources import BatchSource, RetrievedBatches
from realm_jax.training.run.metric_writers import MetricWriter, SwapLog
from realm_jax.training.run.starts import Start, begun
from realm_jax.training.run.train_program import TrainProgram, TrainState
from realm_jax.training.run.training_config import TrainingConfig
from realm_jax.training.run.validation import StoppedError, Validation

CHECKPOINTS, VOCABULARY = "checkpoints", "vocabulary"


class TrainingRun:
  """A training in a working directory, new, warm-started or resumed; a context manager.

  Args:
    workdir: Directory of `checkpoints/`, `metrics.jsonl` and TensorBoard's files.
    description: Description of the model, a dataclass, saved in every checkpoint.
    batch_settings: Settings that determine the batches; see `resumption.changes`.

  Attributes:
    mesh: Mesh of all devices of all processes.
    batch_sharding: Sharding of every array of a batch.
    state: The train state, on the mesh.
    resumed: The checkpoint that the run resumes from, or None.
    identity: Identifies the run.
    best: The best parameters, once they are evaluated.
    logs: Local directory of the files that the run appends to; the working directory unless that is
      in an object store.

  Raises:
    DirectoryInUseError: If another job works in the directory.
    ValueError: If the existing run has another model or other batches, or the directory is no
      run's.
  """

  def __init__(
    self,
    workdir: str,
    *,
    program: TrainProgram,
    config: TrainingConfig,
    description,
    batch_settings: Mapping,
    starts: Sequence[Start] = (),
    min_entropy: float = MIN_ENTROPY,
  ):
    self.workdir, self._config, self._description = workdir, config.run, description
    self.mesh, self.batch_sharding = program.mesh, program.batch_sharding
    self._train_step = program.train_step
    self.best: BestCheckpoint | None = None
    self._refresher: IndexRefresher | None = None
    self._alarm: Alarm | None = None  # that ends the run
    self._unevaluated: int | None = None  # the step whose evaluation was left
    self._healthy_step = -1
    self._failure = ""
    self._stop = StopSignal()
    self._exchange = processes.Exchange()
    self._profile = train_loop.StepTrace(workdir, config.run.profile_steps)
    with contextlib.ExitStack() as stack:
      # Before anything is read, because the checkpointer removes unfinished checkpoints.
      self._still_held = stack.enter_context(
        directory_lock.hold(workdir, kind=directory_lock.WORKDIR)
      )
      self._open(program, config, batch_settings)
      if self.resumed is None:
        self.state = _new_state(program, starts)
      self._check_finite()
      self.logs, self._mirror = workdir, None
      if processes.is_first() and object_store.is_remote(workdir):
        self._mirror = object_store.MirroredLogs(workdir)
        self.logs = self._mirror.directory
      self._writer = MetricWriter(
        self.logs,
        step=self.step,
        min_entropy=min_entropy,
        on_end=lambda alarm: self._end(alarm, collapses=config.stops_on_collapse),
        on_healthy=self._set_healthy,
      )
      self._opened = stack.pop_all()

  def keep(self, vocabulary: WordPieces) -> None:
    """Writes the vocabulary into the workdir, which then has the whole model."""
    if processes.is_first():
      vocabulary.save(os.path.join(self.workdir, VOCABULARY))

  def _open(self, program: TrainProgram, config: TrainingConfig, batch_settings: Mapping) -> None:
    """Opens the checkpoints and resumes the run that they are of, if there are any."""
    directory, run = os.path.join(self.workdir, CHECKPOINTS), config.run
    if run.resume_from is not None:
      resumption.go_back(directory, run.resume_from, learning=config.learning_settings)
    self._checkpointer = orbax_files.Checkpointer(directory, keep=run.keep_checkpoints)
    try:
      self.resumed = self._checkpointer.restore(program.abstract_state)
    except orbax_files.OtherOptimizerError as error:
      learned = orbax_files.read_metadata(orbax_files.resolve(directory)).get("learning", {})
      differing = resumption.differences(learned, config.learning_settings)
      differing.pop(resumption.NUM_STEPS, None)
      raise ValueError(
        f"{self.workdir} holds a run with another optimizer or other frozen parts "
        f"({'; '.join(differing.values()) or error}); resume it with those, or begin from its "
        "checkpoints in another workdir"
      ) from error
    self.identity = orbax_files.run_of(directory)
    self._metadata = {
      "model": json_fields.as_json(self._description),
      "run": self.identity.name,
      "batches": dict(batch_settings),
      "learning": config.learning_settings,
      "resumed_from": run.resume_from,
    }
    self._continued, self._last_good = None, None
    if self.resumed is None:
      return
    before = self.resumed.metadata
    saved_models.check_same_run(before, self._description, self.workdir)
    changed = resumption.changes(
      before.get("batches"), batch_settings, allowed=run.allow_changes, workdir=self.workdir
    )
    resumption.warn_of_other_learning(
      before.get("learning"), config.learning_settings, workdir=self.workdir
    )
    if self.resumed.input and not changed:
      self._continued = self.resumed.input
    self.state, self._last_good = self.resumed.state, before.get("last_good")
    if self.step > run.num_steps:
      logging.warning(
        "%s is at step %d already, after num_steps=%d: it is left as it is",
        self.workdir,
        self.step,
        run.num_steps,
      )

  def _check_finite(self) -> None:
    if not orbax_files.all_finite(self.state):
      saved = self._checkpointer.latest_step()
      raise ValueError(
        f"the parameters that {self.workdir} begins with, of step {saved or 0}, are not finite; "
        + ("begin with other checkpoints" if saved is None else self._way_back(saved))
      )

  def __enter__(self) -> "TrainingRun":
    self._opened.enter_context(self._stop)
    self._opened.enter_context(self._profile)
    if self._mirror is not None:
      self._opened.callback(self._mirror.close)
    self._opened.callback(self._writer.close)
    self._opened.callback(self._checkpointer.close)
    return self

  def __exit__(self, kind, *_):
    """Exits the process with `STOPPED` if the run was stopped before its last step.

    If it was stopped because it has collapsed or diverged, the exit code is 1 and a line says why.
    """
    self._opened.close()
    if kind is None and self._failure:
      raise SystemExit(self._failure)
    if kind is None and self.step < self._config.num_steps:
      raise SystemExit(STOPPED)

  @property
  def step(self) -> int:
    """The number of steps taken."""
    return int(self.state.step)

  def stopped(self) -> bool:
    """Returns whether any process was told to stop; all must call it equally often."""
    stops = self._exchange([self._stop() or self._alarm is not None])
    return stops is not None and bool(stops.any())

  @property
  def _diverged(self) -> bool:
    return self._alarm is not None and self._alarm.diverged

  def put_on_devices(self, batch):
    """Shards a batch over the mesh; every process passes its own rows."""
    return processes.put_on_devices(batch, self.batch_sharding)

  def save_start(self) -> None:
    """Saves a new run's initial parameters, from which the first generation is built."""
    if self.resumed is None:
      self._last_good = 0
      self._save(0, self.state, input={})

  def query_encoder(self, encoder: EncoderConfig) -> Callable:
    """Returns what embeds queries on the devices of the run."""
    return query_encoder(encoder, self.put_on_devices, sharding=self.batch_sharding)

  def own_generation(self, index: str, *, encoder: EncoderConfig, wanted: int | None) -> int:
    """Returns the wanted generation, that of the resumed checkpoint, or the newest.

    A frozen dual encoder must have built it, because its scores are never recomputed.

    Raises:
      ValueError: If it has not.
    """
    if wanted is None and self.resumed is not None:
      wanted = self.resumed.metadata["generation"]
    digest = saved_models.passages_digest(encoder, self.state.params["dual_encoder"])
    return generation_made_by(digest, index, generation=wanted)

  def follow(
    self,
    index: str,
    *,
    refresh: RefreshConfig,
    wanted: int | None = None,
    spread: bool = False,
    with_embeddings: bool = False,
  ) -> IndexRefresher:
    """Returns the generations of an index: the wanted one alone, or the newest and newer ones."""
    published = PublishedGenerations(
      index=index,
      description=self._description,
      searcher=refresh.searcher,
      spread=spread,
      with_embeddings=with_embeddings,
      run=self.identity,
      other_runs=refresh.other_runs if wanted is None else "accept",
    )
    self._refresher = IndexRefresher(published, config=refresh, watch=wanted is None)
    return self._refresher

  def retrieved_batches(
    self,
    examples: Batches,
    make_queries: Callable[[Features], tuple[Any, dict[str, float]]],
    *,
    retriever: PassageFinder,
    refresher: IndexRefresher,
  ) -> RetrievedBatches:
    """Returns the batches of queries; records their generations in `swaps.jsonl`."""
    swaps = SwapLog(self.logs, step=self.step)
    swaps.write(self.step, refresher.current)
    return RetrievedBatches(
      examples,
      make_queries,
      retriever=retriever,
      refresher=refresher,
      put_on_devices=self.put_on_devices,
      first_step=self.step,
      on_swap=swaps.write,
      stop=self.stopped,
    )

  def train(
    self,
    source: BatchSource,
    *,
    validation: Validation | None = None,
    samples: Callable[[], str] | None = None,
  ) -> None:
    """Trains to the end or until stopped, then saves.

    Args:
      source: Provides the batches; restored to the checkpoint's position.
      validation: Evaluation during training, whose best parameters `WORKDIR/best` gets.
      samples: Without an evaluation, returns examples as Markdown, written at each checkpoint.
    """
    num_steps, checkpoint_every = self._config.num_steps, self._config.checkpoint_every
    if validation is not None:
      samples = validation.samples
      self.best = self._opened.enter_context(
        BestCheckpoint(
          os.path.join(self.workdir, BEST),
          metric=validation.metric,
          better=validation.better,
          measured_on=validation.digest,
        )
      )
    best = self.best

    def is_evaluated(step: int) -> bool:
      return validation is not None and (step % validation.every == 0 or step == num_steps)

    def evaluate(step: int, state) -> dict[str, float]:
      if not orbax_files.all_finite(state):
        self._end(alarms.not_finite(step), collapses=True)
        return {}
      if validation is None or best is None or not is_evaluated(step):
        return {}
      try:
        metrics = validation(state.params)
      except StoppedError:
        logging.info("step %d is evaluated when the run resumes", step)
        self._unevaluated = step
        return {}
      described = {**self._metadata, **self._generation}
      best.offer(step, state.params, metrics=metrics, metadata=described)
      return metrics

    def save(step: int, state) -> None:
      healthy, failed = processes.share([self._healthy_step == step, self._diverged])[0]
      if failed or not orbax_files.all_finite(state):
        return
      if healthy:
        self._last_good = step
      is_good = best is not None and best.value is not None and math.isfinite(best.value)
      protected = {self._last_good, best.step if best is not None and is_good else None}
      self._checkpointer.protected = protected - {None}
      position = {
        name: value for part in processes.gather(source.position()) for name, value in part.items()
      }
      whole = {"position": position, "batch": processes.gather_rows(source.in_flight())}
      self._save(step, state, input=whole)

    def save_in_turn(step: int, state) -> None:
      if step % checkpoint_every == 0:
        save(step, state)

    def write_samples(step: int, state) -> None:
      del state
      due = step % checkpoint_every == 0 if validation is None else is_evaluated(step)
      if samples is not None and due:
        self._writer.write_texts(step, {"samples/retrieved": samples()})

    if self.step == 0 and validation is not None and validation.at_start:
      evaluate(0, self.state)
    left = None if self.resumed is None else self.resumed.metadata.get("unevaluated")
    if left == self.step and (metrics := evaluate(self.step, self.state)):
      self._writer.write_scalars(self.step, metrics)
    first_batch = self._first_batch(source)
    self.state = train_loop.train(
      self.state,
      first_batch,
      train_step=self._train_step,
      source=source,
      num_steps=num_steps,
      hooks=[self._profile.after_step, write_samples, save_in_turn],
      writer=self._writer,
      log_every=self._config.log_every,
      stop=self.stopped,
      log_also=lambda step: step % checkpoint_every == 0 or is_evaluated(step),
      evaluate=evaluate,
    )
    save(self.step, self.state)
    self._checkpointer.wait()
    self._failure = processes.share(self._why_it_failed())[0]

  def _end(self, alarm: Alarm, *, collapses: bool) -> None:
    if self._alarm is None and (collapses or alarm.diverged):
      self._alarm = alarm

  def _set_healthy(self, step: int) -> None:
    self._healthy_step = step

  @property
  def best_found(self) -> str:
    """The best checkpoint in words; empty if there is none."""
    if self.best is None or self.best.value is None:
      return ""
    checkpoint = f"{BEST}/{self.best.step} ({self.best.metric} {self.best.value:.4f})"
    if self.best.step == 0:
      return f"; nothing is better than the warm start, {checkpoint}: see the alarms above"
    return f"; the best is {checkpoint}"

  def _why_it_failed(self) -> str:
    """Returns why the run ended and where to continue from; empty if nothing went wrong."""
    if self._alarm is None:
      return ""
    best = self.best
    if best is not None and best.step is not None:
      path = os.path.join(self.workdir, BEST, str(best.step))
      way_out = f"Begin again from {path}"
    else:
      way_out = self._way_back(self._alarm.first_step)
    what, otherwise = "retrieval has collapsed", "; --on_collapse=warn trains on"
    if self._alarm.diverged:
      what, otherwise = "training has diverged", ""
    return (
      f"{self.workdir}: step {self.step}, stopped because {what}: {self._alarm}. "
      f"{way_out}{otherwise}"
    )

  def _way_back(self, step: int) -> str:
    """Returns the checkpoint to continue from: the last good one, or one before `step`."""
    directory = self.identity.checkpoints
    before = [found for found in orbax_files.steps(directory) if found < step]
    good = self._last_good if self._last_good in before else max(before, default=None)
    if good is None:
      return "No checkpoint is from before: begin again in another workdir"
    return f"Begin again from {os.path.join(directory, str(good))} with --resume_from={good}"

  def _first_batch(self, source: BatchSource):
    """Returns the batch in flight of the resumed checkpoint, or the first batch of a new run."""
    if self._continued is not None:
      source.restore(self._continued["position"])
      rows = self._continued["batch"]
      return source.resume({name: processes.own_rows(value) for name, value in rows.items()})
    source.begin(self.state.params)
    batch, _ = source.finish()
    return batch

  @property
  def _generation(self) -> dict[str, int]:
    return {} if self._refresher is None else {"generation": self._refresher.current.generation}

  def _save(self, step: int, state, *, input: dict) -> None:
    self._still_held()
    # A run that resumes from here must find every row up to here.
    if self._mirror is not None:
      self._writer.flush()
      self._mirror.flush()
    known = {**self._metadata, "last_good": self._last_good, "unevaluated": self._unevaluated}
    self._checkpointer.save(step, state, input=input, metadata={**known, **self._generation})


def _new_state(program: TrainProgram, starts: Sequence[Start]) -> TrainState:
  """Returns the state of step 0 with what comes from other checkpoints."""
  state = program.new_state()
  params = begun(state.params, program.abstract_state.params, starts)
  return dataclasses.replace(state, params=params)
