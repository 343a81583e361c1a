"""benchmarks/ablation.py: what runs of the ablation share."""

import threading

import pytest

from realm_jax import main
from tests.experiments import ROOT


@pytest.fixture(scope="module")
def once():
  """The context manager in which one run makes what others wait for."""
  job = main.find(str(ROOT / "benchmarks" / "ablation.py"))
  return job.__globals__["_once"]


def test_what_runs_share_is_made_once_while_the_others_wait(once, tmp_path):
  making, made = threading.Event(), []

  def run(name):
    with once(str(tmp_path / "start")) as needed:
      if needed:
        making.set()
        made.append(name)
        (tmp_path / "start" / "whole").write_text(name)
      else:
        assert (tmp_path / "start" / "whole").read_text() == made[0]

  first = threading.Thread(target=run, args=("first",))
  with once(str(tmp_path / "start")) as needed:
    assert needed
    first.start()
    assert not making.wait(0.3)
    made.append("this")
    (tmp_path / "start" / "whole").write_text("this")
  first.join(10)
  assert made == ["this"]


def test_what_was_interrupted_is_made_again(once, tmp_path):
  with pytest.raises(KeyboardInterrupt), once(str(tmp_path / "start")):
    raise KeyboardInterrupt
  with once(str(tmp_path / "start")) as needed:
    assert needed
