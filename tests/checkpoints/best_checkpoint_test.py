import numpy as np
import pytest

from realm_jax.checkpoints import orbax_files
from realm_jax.checkpoints.orbax_files import BestCheckpoint


def offer(best, step, value, **others):
  params = {"reader": np.full(3, step, np.float32)}
  return best.offer(step, params, metrics={"em": value, **others}, metadata={"model": {"a": 1}})


def kept(directory):
  path = orbax_files.resolve(directory)
  params = orbax_files.restore_params(path, {"reader": np.zeros(3, np.float32)})
  return int(path.name), params["reader"].tolist()


def test_only_a_better_value_replaces_the_best(tmp_path):
  with BestCheckpoint(tmp_path, metric="em") as best:
    assert offer(best, 10, 0.2)
    assert not offer(best, 20, 0.2)
    assert offer(best, 30, 0.5)
    assert not offer(best, 40, 0.4)
  assert kept(tmp_path) == (30, [30, 30, 30])
  assert orbax_files.steps(tmp_path) == [30]


def test_a_restart_remembers_the_best(tmp_path):
  with BestCheckpoint(tmp_path, metric="em") as best:
    offer(best, 10, 0.5, f1=0.7)
  with BestCheckpoint(tmp_path, metric="em") as best:
    assert (best.step, best.value) == (10, 0.5)
    assert not offer(best, 20, 0.4)
  assert kept(tmp_path)[0] == 10
  metadata = orbax_files.read_metadata(orbax_files.resolve(tmp_path))
  assert metadata["best"]["figures"] == {"em": 0.5, "f1": 0.7}
  assert metadata["model"] == {"a": 1}


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_every_number_is_better_than_none(tmp_path, better):
  with BestCheckpoint(tmp_path, metric="em", better=better) as best:
    assert offer(best, 10, float("nan"))
    assert not offer(best, 20, float("nan"))
  with BestCheckpoint(tmp_path, metric="em", better=better) as best:
    assert offer(best, 30, 3.0)
    assert not offer(best, 40, float("nan"))
  assert kept(tmp_path) == (30, [30, 30, 30])


@pytest.mark.parametrize(
  ("before", "offered", "best"),
  [  # steps and values, of which lower ones are better
    ([(90, 3.0)], [(60, 1.0), (80, 0.5), (100, 2.0)], (80, 0.5)),
    ([(50, 3.0)], [(30, 2.0), (40, 1.0), (60, 2.5)], (40, 1.0)),
    ([(50, 3.0)], [(30, 4.0), (60, 5.0)], (30, 4.0)),
    ([(10, 2.0), (50, 1.0)], [(50, 1.0), (60, 1.5)], (50, 1.0)),
    ([(50, 3.0)], [(50, 2.0)], (50, 2.0)),
  ],
)
def test_a_run_that_has_gone_back_keeps_the_best_of_its_branch(tmp_path, before, offered, best):
  for values in (before, offered):
    with BestCheckpoint(tmp_path, metric="em", better="lower") as kept_best:
      for step, value in values:
        offer(kept_best, step, value)
  step, value = best
  assert (kept_best.step, kept_best.value) == best
  assert kept(tmp_path) == (step, [step] * 3)
  assert orbax_files.steps(tmp_path) == [step]
  assert orbax_files.read_metadata(tmp_path / str(step))["best"]["value"] == value


@pytest.mark.parametrize("later", [20, 10])
def test_values_on_other_data_are_not_compared(tmp_path, later, caplog):
  with BestCheckpoint(tmp_path, metric="em", measured_on="first") as best:
    offer(best, 10, 0.9)
  with caplog.at_level("WARNING", logger="absl"):
    best = BestCheckpoint(tmp_path, metric="em", measured_on="second")
  assert "best checkpoint by em on other data" in caplog.text
  with best:
    assert best.value is None
    assert offer(best, later, 0.1) and not offer(best, later + 10, 0.05)
  assert kept(tmp_path)[0] == later


def test_another_figure_or_none_is_refused(tmp_path):
  with BestCheckpoint(tmp_path, metric="em") as best:
    with pytest.raises(ValueError, match=r"no metric is named 'em'; choose one of \['f1'\]"):
      best.offer(1, {}, metrics={"f1": 1.0}, metadata={})
    offer(best, 10, 0.5)
  with pytest.raises(ValueError, match="the best checkpoint by 'em'"):
    BestCheckpoint(tmp_path, metric="f1")
