"""A run is trained again from its retrieval trace, without an index."""

import pytest

from realm_jax.jobs.answering.report import report

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def trace(world, start):
  """The trace of a run of six steps, which was interrupted after four."""
  for num_steps in (4, 6):
    start("traced", num_steps=num_steps, retrieval_trace=True, checkpoint_every=3)
  return str(world / "traced" / "retrievals")


def test_a_replay_has_the_losses_of_its_run_even_if_it_is_interrupted(start, trace, rows):
  for num_steps in (2, 6):
    start(
      "replayed", index=None, generation=None, replay=trace, num_steps=num_steps, checkpoint_every=3
    )
  same = [name for name in rows("traced")[0] if name.startswith("loss/")]
  found, wanted = (
    [[row[name] for name in same] for row in rows(run)] for run in ("replayed", "traced")
  )
  assert len(found) == 6 and found == wanted


def test_a_replay_of_other_batches_or_more_steps_is_refused_before_it_begins(world, start, trace):
  with pytest.raises(ValueError, match=r"of a run with other batches \(seed 0, now 1\)"):
    start("misled_replay", replay=trace, num_steps=6, seed=1)
  with pytest.raises(ValueError, match="has steps 1 to 7, but not step 8; give WORKDIR/retrievals"):
    start("misled_replay", replay=trace, num_steps=7)
  with pytest.raises(ValueError, match="searches no index; omit --eval_corpus"):
    start("misled_replay", replay=trace, num_steps=6, eval_corpus=str(world / "passages"))
  with pytest.raises(ValueError, match="give --index, or --replay of a trace"):
    start("misled_replay", index=None, num_steps=6)
  assert not (world / "misled_replay").exists()


def test_a_report_shows_what_a_step_retrieved(world, trace, tmp_path):
  del trace
  run, page = str(world / "traced"), str(tmp_path / "page.html")
  report(run, output=page, step=5, passages=str(world / "passages"))
  content = open(page, encoding="utf-8").read()
  assert "Step 5" in content and "query 8 of 8" in content
  with pytest.raises(ValueError, match="step=5 needs the corpus that was retrieved from"):
    report(run, step=5)
