"""A run whose retrieval has collapsed ends and says so."""

import pytest

pytestmark = pytest.mark.timeout(600)


def test_a_collapse_ends_the_run_with_an_error_that_names_cause_and_checkpoint(world, start, rows):
  # One passage has all the probability from the first step on.
  with pytest.raises(SystemExit) as ended:
    start("collapsed", temperature=1e-4, num_steps=70, log_every=10, checkpoint_every=30)
  assert "entropy collapse since step 10" in ended.value.code  # any text makes the exit code 1
  assert f"Begin again from {world / 'collapsed' / 'checkpoints' / '0'}" in ended.value.code
  assert rows("collapsed")[-1]["step"] < 70
