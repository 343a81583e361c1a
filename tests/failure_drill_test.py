"""The sums of benchmarks/failure_drill.py over several trainings."""

import dataclasses
import pathlib
import sys
from collections import Counter

import pytest

pytest.importorskip("gcp_storage_emulator")
BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def failure_drill():
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(BENCHMARKS)
    import failure_drill

    yield failure_drill
    patch.delitem(sys.modules, "failure_drill")


@pytest.fixture
def run(failure_drill):
  """A training of ten steps with two kills, all as it should be."""
  steps = ("steps asked", "steps written, each once", "last checkpoint")
  return failure_drill.Summary(
    happened=Counter({"trainer killed at any time": 2, "disk full": 1}),
    restarts=Counter(trainer=3),
    found=Counter(dict.fromkeys(steps, 10)),
    seconds=100.0,
  )


def test_a_drill_goes_on_from_the_runs_of_its_file(failure_drill, run, tmp_path):
  path = str(tmp_path / "drill.json")
  for kills in (2, 4):
    progress = failure_drill.Progress(path)
    progress.add(run)
    again = failure_drill.Progress(path)
    assert again.runs == progress.runs and again.total.kills == kills
  assert again.total.restarts == {"trainer": 6} and again.total.seconds == 200
  assert again.total.is_whole()
  assert "| seconds | 200.0 |" in again.total.table()


@pytest.mark.parametrize(
  ("name", "value"),
  [
    ("steps written, each once", 9),
    ("last checkpoint", 9),
    ("of those damaged", 1),
    ("losses unlike the undisturbed training's", 1),
  ],
)
def test_one_thing_wrong_is_not_whole(run, name, value):
  assert run.is_whole()
  assert not dataclasses.replace(run, found=Counter({**run.found, name: value})).is_whole()


def test_every_kind_of_kill_is_drawn_and_the_run_outlasts_them(failure_drill):
  events = failure_drill.plan(num_kills=10, on_disk=True, damages=1, num_steps=200, seed=0)
  killed = Counter(event.name for event in events if "killed" in event.name)
  assert len(killed) == 5 and set(killed.values()) == {2}
  assert len(events) == 13 and events[-1].step < 200 - 2 * failure_drill.MAX_STALENESS


def test_what_comes_after_the_end_of_a_training_is_left_to_the_next(failure_drill, monkeypatch):
  drill = failure_drill.Drill.__new__(failure_drill.Drill)
  drill.happened = Counter()
  monkeypatch.setattr(drill, "_keep_running", iter([False, True]).__next__)
  monkeypatch.setattr(drill, "_reached", lambda: 100)
  monkeypatch.setattr(drill, "_generations", set)
  drill.run([failure_drill.Event(1, "generation torn"), failure_drill.Event(2, "disk full")])
  assert not drill.happened
