"""Alarms are raised for the runs they are meant for, once per stretch, and for no healthy run."""

import pytest

from realm_jax.training import alarms

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
