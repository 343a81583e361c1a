"""A run whose retrieval has collapsed ends and says so."""

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_collapse_ends_the_run_with_an_error_that_names_cause_and_checkpoint(world, start, rows):
  # Queries of an encoder drawn at random all find the same passage.
  with pytest.raises(SystemExit) as ended:
    start("collapsed", num_steps=70, log_every=10, checkpoint_every=30)
  # Any text makes the exit code 1.
  assert "one passage for everything since step 10" in ended.value.code
  assert f"Begin again from {world / 'collapsed' / 'checkpoints' / '0'}" in ended.value.code
  assert rows("collapsed")[-1]["step"] < 70
