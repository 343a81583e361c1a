"""Alarms are raised for the runs they are meant for, once per stretch, and for no healthy run."""

import pytest

from realm_jax.training.run import alarms

HEALTHY = {
  "retrieval/null_mass": 0.2,
  "retrieval/retrieval_entropy": 0.9,
  "retrieval/hub_share": 0.05,
  "retrieval/retrieval_utility": 2.0,
}


def rows(*changes, interval=20.0):
  """Makes rows of a run that swaps a generation at each write, changed by the given figures."""
  return [
    {
      "step": 10 * (i + 1),
      **HEALTHY,
      "index/generation": float(i),
      "index/age_seconds": interval,
      **change,
    }
    for i, change in enumerate(changes)
  ]


def names(found):
  return [(alarm.name, alarm.first_step, alarm.last_step) for alarm in found]


def test_a_healthy_run_is_quiet():
  assert alarms.find(rows(*[{}] * 30)) == []
  assert alarms.find([]) == []
  assert alarms.find([{"step": 1, "loss/total": 1.0}, {"step": 2, "loss/total": None}] * 5) == []


@pytest.mark.parametrize(
  ("name", "figure", "value", "length"),
  [
    ("null mass", "retrieval/null_mass", 0.99, 3),
    ("entropy collapse", "retrieval/retrieval_entropy", 0.001, 3),
    ("one passage for everything", "retrieval/hub_share", 0.8, 3),
    ("retrieval does not help", "retrieval/retrieval_utility", 0.0, 10),
  ],
)
def test_a_figure_rings_when_it_was_bad_long_enough(name, figure, value, length):
  bad = {figure: value}
  assert alarms.find(rows({}, *[bad] * (length - 1), {})) == []
  found = alarms.find(rows({}, *[bad] * length, {}))
  assert names(found) == [(name, 20, 10 * (length + 1))]
  assert figure in str(found[0]) and len(found[0].cause) > 40
  twice = alarms.find(rows(*[bad] * length, {}, *[bad] * length))
  assert [alarm.name for alarm in twice] == [name, name]


def test_a_training_that_skips_its_steps_rings():
  def skipping(share, length):
    return [{"skipped_steps": 10.0 * share * i} for i in range(length)]

  assert alarms.find(rows(*skipping(0.2, 20))) == []
  assert alarms.find(rows({"skipped_steps": 500.0}, {"skipped_steps": 500.0})) == []
  found = alarms.find(rows(*skipping(1, 5)))
  assert names(found) == [("steps skipped", 20, 50)]
  assert "skipped_share is 1. Gradients are not finite" in str(found[0])


def test_steps_skipped_from_the_first_ring_at_the_third_row():
  found = alarms.find([{"step": 100 * i, "skipped_steps": 100.0 * i} for i in (1, 2, 3)])
  assert names(found) == [("steps skipped", 100, 300)]
  assert alarms.ending(found, step=300) == found[0]


@pytest.mark.parametrize(
  ("losses", "first_step"),
  [
    ([15.6, 9.0, 400.0, 5e3, 4.7e6], 30),
    ([0.01, 9.0, 10.1, 10.0, 10.1, 9.0], None),
    ([0.01, 11.0, 12.0, 13.0], 20),
    ([2.0, 40.0, 40.0, 2.0], None),
    ([-500.0, 400.0, 5e3, 5e3], None),
    ([-5.0, 60.0, 5e3, 5e3], 20),
    ([4.7e6, 2e6, 1e6, 15.0], None),
  ],
)
def test_a_loss_far_above_its_best_rings_and_ends_the_run(losses, first_step):
  found = alarms.find(rows(*({"loss/total": loss} for loss in losses)))
  if first_step is None:
    assert not found
    return
  last = 10 * len(losses)
  assert names(found) == [("loss far above its best", first_step, last)]
  assert found[0].diverged and alarms.ending(found, step=last) == found[0]
  assert not alarms.is_healthy(rows(*({"loss/total": loss} for loss in losses)))


def test_a_loss_that_is_not_finite_rings():
  good, bad = {"loss/total": 2.0}, {"loss/total": None}
  assert alarms.find(rows(good, bad, bad, good, {}, {}, {})) == []
  found = alarms.find(rows(good, bad, bad, bad))
  assert names(found) == [("loss not finite", 20, 40)]
  assert "loss/total is not finite" in str(found[0])


def stays(generation, age):
  return {"index/generation": float(generation), "index/age_seconds": age}


def test_the_builder_is_silent_when_a_generation_gets_far_too_old():
  healthy = [stays(0, 20.0), stays(1, 60.0), stays(2, 60.0)]
  assert alarms.find(rows(*healthy, stays(2, 250.0))) == []
  found = alarms.find(rows(*healthy, stays(2, 250.0), stays(2, 301.0), stays(2, 400.0)))
  assert names(found) == [("builder silent", 50, 60)]
