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


def test_another_figure_or_none_is_refused(tmp_path):
  with BestCheckpoint(tmp_path, metric="em") as best:
    with pytest.raises(ValueError, match=r"no metric is named 'em'; choose one of \['f1'\]"):
      best.offer(1, {}, metrics={"f1": 1.0}, metadata={})
    offer(best, 10, 0.5)
  with pytest.raises(ValueError, match="the best checkpoint by 'em'"):
    BestCheckpoint(tmp_path, metric="f1")
