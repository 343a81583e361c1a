"""What every training job does the same way: mesh, sharded state, warm start, checkpoints, loop."""

import dataclasses
import os
from collections.abc import Callable, Sequence

import flax.traverse_util
import jax
import jax.numpy as jnp

from realm_jax import object_store, partitioning, processes
from realm_jax.training import checkpoints, metric_writers, train_loop
from realm_jax.training.alarms import AlarmSettings
from realm_jax.training.best_checkpoint import BestCheckpoint
from realm_jax.training.objective import Objective
from realm_jax.training.optimizer import OptimizerConfig
from realm_jax.training.train_program import TrainProgram

CHECKPOINTS = "checkpoints"


@dataclasses.dataclass(frozen=True)
class WarmStart:
  """Parameters to begin with.

  Attributes:
    checkpoints: directory of checkpoints; the newest is taken.
    parts: pairs of a path in this model's parameters and one in the checkpoint's, joined by "/".
  """

  checkpoints: str
  parts: Sequence[tuple[str, str]]


class TrainingRun:
  """A training in a working directory: new, warm-started or continued; a context manager.

  Args:
    workdir: holds `checkpoints/`, `metrics.jsonl` and TensorBoard's files.
    init_params: makes the boxed parameters from a key.
    objective: what is minimised.
    optimizer: settings.
    warm_starts: where a new run takes parameters from.
    seed: of parameters and dropout.
    accumulate_steps: see `make_train_step`.
    model_parallel: devices that share one copy of the model; the others split the batch.
    layout: of parameters and optimizer, see `partitioning`.
    keep_checkpoints: how many are kept.
    alarm_settings: when figures are alarming.

  Attributes:
    mesh: of all devices of all processes.
    batch_sharding: of every array of a batch.
    state: the train state, on the mesh.
    resumed: the checkpoint that the run continues, or None.
    identity: tells it from other runs.
    logs: local directory of what the run appends to; the working directory unless that lies in an
      object store.
  """

  def __init__(
    self,
    *,
    workdir: str,
    init_params: Callable[[jax.Array], dict],
    objective: Objective,
    optimizer: OptimizerConfig,
    warm_starts: Sequence[WarmStart],
    seed: int,
    accumulate_steps: int,
    model_parallel: int,
    keep_checkpoints: int,
    layout: partitioning.Layout = "replicated",
    alarm_settings: AlarmSettings = AlarmSettings(),
  ):
    if jax.local_device_count() % model_parallel:
      raise ValueError(
        f"model_parallel={model_parallel} does not divide the {jax.local_device_count()} devices "
        "of a process; a copy of the model must lie within one process"
      )
    self.workdir = workdir
    program = TrainProgram(
      mesh=partitioning.make_mesh(model=model_parallel),
      init_params=init_params,
      objective=objective,
      optimizer=optimizer,
      seed=seed,
      accumulate_steps=accumulate_steps,
      layout=layout,
    )
    self.mesh = program.mesh
    self.batch_sharding = program.batch_sharding
    self._train_step = program.train_step
    directory = os.path.join(workdir, CHECKPOINTS)
    self._checkpointer = checkpoints.Checkpointer(directory, keep=keep_checkpoints)
    self.resumed = self._checkpointer.restore(program.abstract_state)
    self.identity = checkpoints.run_of(directory)
    if self.resumed is not None:
      self.state = self.resumed.state
    else:
      self.state = program.new_state()
      for warm_start in warm_starts:
        self.state = self.state.replace(
          params=warm_started(self.state.params, program.abstract_state.params, warm_start)
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
    self._stop = train_loop.StopSignal()
    self._tell_stop = processes.Exchange()

  def __enter__(self) -> "TrainingRun":
    self._stop.__enter__()
    return self

  def __exit__(self, *exception):
    self._checkpointer.__exit__()
    self._writer.close()
    if self._mirror is not None:
      self._mirror.close()
    self._stop.__exit__()

  @property
  def step(self) -> int:
    """Steps taken."""
    return int(self.state.step)

  def stopped(self) -> bool:
    """Returns whether a process was told to stop; all of them must ask equally often."""
    told = self._tell_stop([self._stop()])
    return told is not None and bool(told.any())

  def place(self, batch):
    """Splits a batch over the mesh; every process gives its own rows."""
    return processes.place(batch, self.batch_sharding)

  def save(self, step: int, state, *, input: dict, metadata: dict) -> None:
    """Starts to write a checkpoint."""
    if self._mirror is not None:
      # A run that goes on from here finds every row up to here.
      self._writer.flush()
      self._mirror.flush()
    metadata = {**metadata, "run": self.identity.name}
    self._checkpointer.save(step, state, input=input, metadata=metadata)

  def wait_for_checkpoint(self) -> None:
    """Waits until the checkpoint under way is on disk."""
    self._checkpointer.wait()

  def first_batch(self, source, features):
    """Returns the batch in flight of the checkpoint continued, or the first one of a new run.

    Args:
      source: of batches.
      features: the iterator that the source takes from; it is put where the checkpoint left it.
    """
    if self.resumed is not None and self.resumed.input:
      features.restore(self.resumed.input["position"])
      rows = self.resumed.input["batch"]
      return source.resume({name: processes.own_rows(value) for name, value in rows.items()})
    source.begin(self.state.params)
    batch, _ = source.finish()
    return batch

  def train(
    self,
    batch,
    *,
    source: train_loop.BatchSource,
    num_steps: int,
    log_every: int,
    checkpoint_every: int,
    input: Callable[[], dict],
    metadata: Callable[[], dict],
    evaluate: Callable[[dict], dict[str, float]] | None = None,
    eval_every: int = 1,
    best: BestCheckpoint | None = None,
    samples: Callable[[], str] | None = None,
  ) -> None:
    """Trains to the end or until stopped, and saves what was reached.

    Args:
      batch: of the first step.
      source: of the following ones.
      num_steps: of the whole run.
      log_every: steps between two writes of metrics; checkpoints and evaluations write, too.
      checkpoint_every: steps between two checkpoints.
      input: the numpy trees that belong to the state: data position and batch in flight.
      metadata: the JSON values of a checkpoint.
      evaluate: returns figures of the parameters; none: no evaluation.
      eval_every: steps between two evaluations; the last step has one as well.
      best: keeps the parameters that were evaluated best.
      samples: returns examples as Markdown, written at each evaluation; where nothing is evaluated,
        at each checkpoint.
    """

    def evaluated(step: int) -> bool:
      return evaluate is not None and (step % eval_every == 0 or step == num_steps)

    def figures(step: int, state) -> dict[str, float]:
      if not evaluated(step):
        return {}
      found = evaluate(state.params)
      if best is not None:
        best.offer(step, state.params, figures=found, metadata=metadata())
      return found

    def save(step: int, state) -> None:
      own = input()
      position = {
        name: value for part in processes.gather(own["position"]) for name, value in part.items()
      }
      whole = {"position": position, "batch": processes.gather_rows(own["batch"])}
      self.save(step, state, input=whole, metadata=metadata())

    def save_in_turn(step: int, state) -> None:
      if step % checkpoint_every == 0:
        save(step, state)

    def write_samples(step: int, state) -> None:
      del state
      due = step % checkpoint_every == 0 if evaluate is None else evaluated(step)
      if samples is not None and due:
        self._writer.write_texts(step, {"samples/retrieved": samples()})

    self.state = train_loop.train(
      self.state,
      batch,
      train_step=self._train_step,
      source=source,
      num_steps=num_steps,
      hooks=[write_samples, save_in_turn],
      writer=self._writer,
      log_every=log_every,
      stop=self.stopped,
      log_also=lambda step: step % checkpoint_every == 0 or evaluated(step),
      evaluate=figures,
    )
    save(self.step, self.state)
    self.wait_for_checkpoint()


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
  saved = flax.traverse_util.flatten_dict(restored, sep="/")
  # Copies, because two places may take the same array and the state's buffers are donated.
  flat.update({name: jnp.copy(saved[source]) for name, source in wanted.items()})
  return flax.traverse_util.unflatten_dict(flat, sep="/")
