import threading

import pytest

from realm_jax.jobs.training import ablate


def test_what_runs_share_is_made_once_while_the_others_wait(tmp_path):
  making, made = threading.Event(), []

  def run(name):
    with ablate._once(str(tmp_path / "start")) as needed:
      if needed:
        making.set()
        made.append(name)
        (tmp_path / "start" / "whole").write_text(name)
      else:
        assert (tmp_path / "start" / "whole").read_text() == made[0]

  first = threading.Thread(target=run, args=("first",))
  with ablate._once(str(tmp_path / "start")) as needed:
    assert needed
    first.start()
    assert not making.wait(0.3)
    made.append("this")
    (tmp_path / "start" / "whole").write_text("this")
  first.join(10)
  assert made == ["this"]


def test_what_was_interrupted_is_made_again(tmp_path):
  with pytest.raises(KeyboardInterrupt), ablate._once(str(tmp_path / "start")):
    raise KeyboardInterrupt
  with ablate._once(str(tmp_path / "start")) as needed:
    assert needed
