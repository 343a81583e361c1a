"""The simulation of trainer and builder, against what can be worked out by hand."""

import json
import pathlib
import sys

import numpy as np
import pytest

sys.path.append(str(pathlib.Path(__file__).parent.parent / "benchmarks"))
import simulate

# A step a second; the checkpoint of step 10 is there at 10, its index at 16, in use at 17.
DURATIONS = simulate.Durations(
  step=1.0, save=0.0, embed=4.0, publish=2.0, load=1.0, trainer_poll=0.5, builder_poll=0.5,
  restart=20.0,
)  # fmt: skip


def staleness(durations=(), **settings):
  found = DURATIONS._replace(**dict(durations))
  return simulate.simulate(found, **{"num_steps": 40, "checkpoint_every": 10, **settings})


def test_a_generation_is_used_when_it_is_saved_embedded_published_and_loaded():
  found = staleness()
  assert found.staleness.tolist()[:30] == [*range(17), *range(7, 17), *range(7, 10)]
  assert (found.swaps, found.seconds, found.goodput) == (3, 40.0, 1.0)


def test_a_slow_builder_takes_the_newest_checkpoint():
  found = staleness({"embed": 14.0})
  # Begun at 10, there at 26; then that of step 20, there at 42.
  assert found.staleness.tolist() == [*range(27), *range(17, 30)]


@pytest.mark.parametrize("field", ["save", "embed", "publish", "load"])
def test_each_duration_delays_the_swap(field):
  later = {field: getattr(DURATIONS, field) + 2.0}
  assert staleness(later).staleness.max() == staleness().staleness.max() + 2


def test_a_killed_trainer_goes_on_from_its_checkpoint_with_the_newest_generation():
  found = staleness(trainer_kills=[25.5])
  # Six steps after that of step 20, and the restart.
  assert found.seconds == 40 + 6 + 20
  assert found.staleness.tolist()[20:30] == [*range(10)]
  assert found.goodput == pytest.approx(40 / 66)


def test_a_killed_builder_keeps_what_it_has_embedded():
  found = staleness(builder_kills=[12.0])
  assert found.staleness.tolist()[:38] == [*range(37), 27]


def write_run(directory, *, embed=4.0, pause=0.0):
  """Writes the logs of a run like that of `DURATIONS`, which rests after step 20."""

  def write(name, rows):
    (directory / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

  at = {step: 100.0 + step + pause * (step > 20) for step in range(41)}
  write("metrics.jsonl", [{"step": s, "seconds": at[s]} for s in (5, 15, 20, 25, 40)])
  swaps = [(0, 0), (17, 10), (27, 20), (37, 30)]
  write(
    "swaps.jsonl",
    [{"step": s, "training_step": t, "seconds": at[s], "created": at[s] - 1} for s, t in swaps],
  )
  line = "generation, embedded in {} s, index built and published in {} s\n"
  log = directory / "build_index.log"
  log.write_text(line.format(60.0, 30.0) + 3 * line.format(embed, 2.0))
  return directory, log


def test_a_run_is_replayed_from_its_logs(tmp_path):
  real, found = simulate.replay(*write_run(tmp_path))
  assert np.array_equal(found.staleness, real.staleness)
  assert (real.swaps, found.swaps, real.goodput) == (3, 3, 1.0)
  slower = simulate.replay(*write_run(tmp_path, embed=8.0))[1]
  assert slower.staleness.mean() > real.staleness.mean()


def test_a_pause_of_a_run_is_replayed_as_a_kill(tmp_path):
  real, found = simulate.replay(*write_run(tmp_path, pause=300.0))
  assert real.goodput == pytest.approx(40 / 340) == found.goodput
