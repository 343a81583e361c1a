"""The trace of a run that was interrupted: on the page of its report, and trained on again."""

import pytest

from examples.replayed_batches import Replayed
from realm_jax.jobs.answering.report import report

pytestmark = pytest.mark.timeout(600)


def test_a_report_shows_what_a_step_retrieved(world, start, tmp_path):
  for num_steps in (4, 6):
    start("traced", num_steps=num_steps, retrieval_trace=True, checkpoint_every=3)
  run, page = str(world / "traced"), str(tmp_path / "page.html")
  report(run, output=page, step=5, passages=str(world / "passages"))
  content = open(page, encoding="utf-8").read()
  assert "Step 5" in content and "query 8 of 8" in content
  with pytest.raises(ValueError, match="step=5 needs the corpus that was retrieved from"):
    report(run, step=5)


def test_a_trace_is_read_again_with_the_losses_of_its_run(world, start, losses):
  start("traced", num_steps=6, retrieval_trace=True, checkpoint_every=3)
  replayed = Replayed(str(world / "traced" / "retrievals"))
  # The last step retrieves for the next one. The second half resumes.
  for num_steps in (2, 5):
    start("replayed", num_steps=num_steps, source=replayed)
  assert list(losses("replayed").values()) == list(losses("traced").values())[:5]
