"""A run in its working directory: what it records of its batches, and resuming with others."""

import dataclasses
import os
import shutil
import signal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.checkpoints import orbax_files
from realm_jax.checkpoints.orbax_files import BestCheckpoint
from realm_jax.devices.datatypes import Mean
from realm_jax.foundations import text_files
from realm_jax.launching.stop_signal import STOPPED
from realm_jax.objectives.marginal_likelihood import MarginalLikelihood
from realm_jax.objectives.objective import LOSS, Loss
from realm_jax.training.run.batch_sources import PlainBatches
from realm_jax.training.run.metric_writers import METRICS_FILE
from realm_jax.training.run.optimizer import OptimizerConfig
from realm_jax.training.run.training_config import RunConfig, TrainingConfig
from realm_jax.training.run.training_run import TrainingRun
from realm_jax.training.run.validation import StoppedError, Validation


@dataclasses.dataclass(frozen=True)
class Described:
  """A model with an empty description."""


class Numbers:
  """Batches of one number, counted from 0."""

  def __init__(self, batch_size):
    self.read, self._batch_size = 0, batch_size

  def __next__(self):
    self.read += 1
    return {"x": np.full((self._batch_size, 1), self.read, np.float32)}

  def position(self):
    return {"read": np.array([self.read])}

  def restore(self, position):
    self.read = int(position["read"][0])


@pytest.fixture
def begun(tmp_path):
  """`begun(num_steps, ...)` is a run, not yet entered."""

  def begin(num_steps, *, batch_size=8, learning_rate=3e-5, optimizer=None, **settings):
    objective = Loss(
      lambda params, batch, key: batch["x"] @ params["kernel"],
      lambda outputs, batch: {LOSS: Mean(jnp.sum(outputs**2), jnp.float32(outputs.size))},
    )
    config = TrainingConfig(
      objective=MarginalLikelihood(),  # which is only described
      run=RunConfig(num_steps=num_steps, log_every=1, **settings),
      optimizer=OptimizerConfig(learning_rate=learning_rate, **(optimizer or {})),
    )
    boxed = nn.LogicallyPartitioned(jnp.ones((1, 1)), ("embed", "mlp"))
    return TrainingRun(
      str(tmp_path / "run"),
      program=config.make_program(
        objective, init_params=lambda key: {"kernel": boxed}, batch_size=batch_size
      ),
      config=config,
      description=Described(),
      batch_settings={"batch_size": batch_size, "seed": config.run.seed},
    )

  return begin


@pytest.fixture
def read_after(begun):
  """`read_after(num_steps, ...)` trains so far, and returns the position of the data then."""

  def train(num_steps, *, batch_size=8, **settings):
    numbers = Numbers(batch_size)
    with begun(num_steps, batch_size=batch_size, **settings) as run:
      run.train(PlainBatches(numbers, put_on_devices=run.put_on_devices))
      assert run.step == num_steps
    return numbers.read

  return train


def test_the_error_of_a_step_that_took_the_state_with_it_is_the_one_that_is_told(begun, tmp_path):
  with pytest.raises(OSError, match="a process did not answer"), begun(2) as run:
    run.state.step.delete()
    raise OSError("a process did not answer")


def test_a_run_goes_on_where_its_data_stopped(read_after, tmp_path):
  assert read_after(2) == 3
  saved = orbax_files.read_metadata(orbax_files.resolve(tmp_path / "run" / "checkpoints"))
  assert saved["batches"] == {"batch_size": 8, "seed": 0}
  assert read_after(3) == 4


def test_an_evaluation_does_not_hold_up_a_stop_and_is_made_when_the_run_resumes(begun, tmp_path):
  """The checkpoint is of the step that was to be evaluated, and the best is found as without it."""
  stops = [True, False, False]

  class Score(Validation):
    every, metric, digest = 2, "dev/score", ""

    def __call__(self, params):
      if stops.pop(0):
        os.kill(os.getpid(), signal.SIGTERM)
        raise StoppedError
      return {"dev/score": float(params["kernel"][0, 0])}

    def samples(self):
      return "a sample"

  def train():
    with begun(4) as run:
      run.train(PlainBatches(Numbers(8), put_on_devices=run.put_on_devices), validation=Score())
    return run.best_found

  with pytest.raises(SystemExit) as stopped:
    train()
  assert stopped.value.code == STOPPED
  assert orbax_files.steps(tmp_path / "run" / "checkpoints") == [2]
  assert train().startswith("; the best is best/2 (dev/score ")
  rows = text_files.read_log(tmp_path / "run" / METRICS_FILE)
  assert [row["step"] for row in rows if "dev/score" in row] == [2, 4]
  assert [row["step"] for row in rows if LOSS in row] == [1, 2, 3, 4]
  assert not stops and orbax_files.steps(tmp_path / "run" / "best") == [2]


def test_other_batches_are_refused_or_begin_anew(read_after):
  read_after(2)
  with pytest.raises(ValueError, match=r"other batches \(batch_size 8, now 16\)"):
    read_after(3, batch_size=16)
  assert read_after(3, batch_size=16, allow_changes=("batch_size",)) == 2


@pytest.mark.parametrize(
  ("optimizer", "extended"),
  [
    ({}, "run.num_steps 2, now 3"),  # the decay ends later, so its rate at step 2 is not 0
    ({"schedule": "constant"}, "run.num_steps 2, now 3"),  # the warm-up is a tenth of the run
    ({"schedule": "constant", "warmup_steps": 0}, None),
  ],
)
def test_another_learning_rate_is_warned_of(read_after, caplog, optimizer, extended):
  other = "optimizer.learning_rate 3e-05, now 0.001"
  read_after(2, optimizer=optimizer)
  with caplog.at_level("WARNING", logger="absl"):
    read_after(3, optimizer=optimizer)
    read_after(3, optimizer=optimizer)
    read_after(3, optimizer=optimizer, learning_rate=1e-3)
  told = [line.partition("run continues with other settings: ")[2] for line in caplog.messages]
  assert told == ([other] if extended is None else [extended, other])


def test_a_run_that_is_asked_for_fewer_steps_than_it_has_is_left_and_says_so(
  begun, tmp_path, caplog
):
  for num_steps in (4, 3):
    with caplog.at_level("WARNING", logger="absl"), begun(num_steps, checkpoint_every=2) as run:
      run.train(PlainBatches(Numbers(8), put_on_devices=run.put_on_devices))
  assert run.step == 4 and orbax_files.steps(tmp_path / "run" / "checkpoints") == [2, 4]
  assert caplog.messages[-1].endswith(
    "is at step 4 already, after num_steps=3: it is left as it is"
  )


@pytest.mark.parametrize(
  ("other", "named"),
  [
    ({"name": "adamw"}, r"optimizer\.name bert_adam, now adamw"),
    ({"frozen_parts": ("kernel",)}, r"optimizer\.frozen_parts \[\], now \['kernel'\]"),
  ],
)
def test_another_optimizer_is_named_and_nothing_is_lost(read_after, tmp_path, other, named):
  read_after(2)
  with pytest.raises(
    ValueError, match=rf"another optimizer or other frozen parts \({named}\); res"
  ):
    read_after(3, optimizer=other)
  assert orbax_files.steps(tmp_path / "run" / "checkpoints") == [2]
  assert read_after(3) == 4


def diverge(begun, **settings):
  """Trains until the parameters are so large that no loss is finite."""
  settings = {"checkpoint_every": 2, "keep_checkpoints": 2, "learning_rate": 1e30, **settings}
  with pytest.raises(SystemExit) as ended, begun(60, **settings) as run:
    run.train(PlainBatches(Numbers(8), put_on_devices=run.put_on_devices))
  assert run.step < 30
  return str(ended.value.code)


def test_a_diverged_run_ends_and_keeps_the_last_good_checkpoint(begun, tmp_path, read_after):
  read_after(4, checkpoint_every=2)
  message = diverge(begun)
  directory = tmp_path / "run" / "checkpoints"
  assert "stopped because training has diverged: " in message
  assert message.endswith(f"Begin again from {directory / '4'} with --resume_from=4")
  assert 4 in orbax_files.steps(directory)
  assert "from step 4" not in diverge(begun, on_collapse="warn")  # which concerns retrieval
  assert read_after(6, resume_from=4) == 7
  assert orbax_files.steps(directory)[-2:] == [4, 6]


def test_going_back_is_done_once_and_again_only_with_other_settings(begun, tmp_path, read_after):
  read_after(6, checkpoint_every=2)
  with BestCheckpoint(tmp_path / "run" / "best", metric="loss") as best:
    best.offer(2, {"a": np.ones(2)}, metrics={"loss": 1.0}, metadata={})
  assert read_after(6, checkpoint_every=2, resume_from=4) == 7
  assert orbax_files.steps(tmp_path / "run" / "best") == [2]
  with BestCheckpoint(tmp_path / "run" / "best", metric="loss") as best:
    best.offer(5, {"a": np.ones(2)}, metrics={"loss": 2.0}, metadata={})
  assert read_after(4, checkpoint_every=2, resume_from=2) == 5
  assert not orbax_files.steps(tmp_path / "run" / "best")  # it was of the deleted branch
  assert orbax_files.steps(tmp_path / "run" / "checkpoints") == [2, 4]
  assert read_after(6, checkpoint_every=2, resume_from=2) == 7
  assert orbax_files.steps(tmp_path / "run" / "checkpoints") == [2, 4, 6]
  read_after(4, checkpoint_every=4, resume_from=2, learning_rate=1e-3)
  assert orbax_files.steps(tmp_path / "run" / "checkpoints") == [2, 4]
  with pytest.raises(FileNotFoundError, match=r"no checkpoint of step 3 in .*; it has \[2, 4\]"):
    read_after(4, resume_from=3)


def test_a_run_goes_back_past_damaged_checkpoints(tmp_path, read_after):
  directory = tmp_path / "run" / "checkpoints"
  read_after(6, checkpoint_every=2)
  (directory / "6" / "metadata" / "metadata").write_text("")
  with pytest.raises(orbax_files.DamagedCheckpointError, match=r"run/\S*/6 is .*--resume_from=4$"):
    read_after(8, checkpoint_every=2)
  assert read_after(8, checkpoint_every=2, resume_from=4) == 9
  assert orbax_files.steps(directory) == [2, 4, 6, 8]
  # The same command has saved step 6 since, so it does not begin again from step 4.
  shutil.rmtree(directory / "8" / "state")
  with pytest.raises(orbax_files.DamagedCheckpointError, match=r"/8 is .*--resume_from=6$"):
    read_after(8, checkpoint_every=2, resume_from=4)
  (directory / "6" / "metadata" / "metadata").write_text("")
  with pytest.raises(orbax_files.DamagedCheckpointError, match="/6 is damaged"):
    read_after(8, checkpoint_every=2, resume_from=6)
  assert orbax_files.steps(directory) == [2, 4, 6, 8]
  assert read_after(8, checkpoint_every=2, resume_from=4) == 9


@pytest.mark.parametrize("part", ["params", "opt_state"])
def test_what_is_not_finite_is_neither_saved_nor_begun_with(
  begun, tmp_path, read_after, part, monkeypatch
):
  read_after(2, checkpoint_every=2)

  def spoilt(state):
    bad = jax.tree.map(lambda x: x * np.float32(np.nan) if x.dtype == np.float32 else x, state)
    return dataclasses.replace(state, **{part: getattr(bad, part)})

  with pytest.raises(SystemExit, match="parameters not finite since step 3"), begun(60) as run:
    run.state = spoilt(run.state)
    run.train(PlainBatches(Numbers(8), put_on_devices=run.put_on_devices))
  directory = tmp_path / "run" / "checkpoints"
  assert orbax_files.steps(directory) == [2]
  with begun(2) as run:
    with pytest.raises(ValueError, match="step 3 has values that are not finite"):
      run._checkpointer.save(3, spoilt(run.state), input={}, metadata={})
    with monkeypatch.context() as patch:
      patch.setattr(orbax_files, "all_finite", lambda tree: True)
      run._checkpointer.save(3, spoilt(run.state), input={}, metadata=run._metadata)
      run._checkpointer.wait()
  with pytest.raises(ValueError, match=r"begins with, .*not finite; .*/2 with --resume_from=2"):
    begun(60)


def test_a_batch_that_the_devices_cannot_share_is_refused(begun, tmp_path):
  with pytest.raises(ValueError, match="batch_size=12 cannot be split over 8 .*multiple of 8"):
    begun(1, batch_size=12)
  assert not (tmp_path / "run").exists()


def test_some_steps_are_traced_where_tensorboard_finds_them(begun, tmp_path, read_after):
  read_after(6, profile_steps=(2, 4))
  [trace] = (tmp_path / "run" / "plugins" / "profile").glob("*/*.xplane.pb")
  assert b"PjitFunction" in trace.read_bytes()
  with pytest.raises(ValueError, match=r"profile_steps=\(4,\); give the first step and the one"):
    RunConfig(profile_steps=(4,))
