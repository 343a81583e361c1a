"""Pre-training in whose steps the dual encoder goes on learning from pairs."""

import pytest

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def rehearsal(mined_pairs):
  """The keywords of a training that rehearses pairs."""
  return {**mined_pairs, "rehearsal__num_pairs": 8}


def test_a_resumed_run_rehearses_what_one_never_stopped_does(start, losses, rows, rehearsal):
  start("rehearsed", num_steps=5, checkpoint_every=100, **rehearsal)
  for num_steps in (2, 5):
    start("rehearsed_halves", num_steps=num_steps, checkpoint_every=2, **rehearsal)
  whole = losses("rehearsed")
  assert len(whole) == 5 and losses("rehearsed_halves") == whole
  of_pairs, halves = (
    [row["pairs/total"] for row in rows(n)] for n in ("rehearsed", "rehearsed_halves")
  )
  assert len(set(of_pairs)) == 5 and halves == of_pairs
  start("unrehearsed", num_steps=1)
  assert whole[1] == pytest.approx(losses("unrehearsed")[1] + of_pairs[0], rel=1e-5)


def test_other_pairs_are_another_training(start, rehearsal):
  start("changed", num_steps=1, **rehearsal)
  with pytest.raises(ValueError, match="rehearsal.hard_negatives"):
    start("changed", num_steps=2, **rehearsal, rehearsal__hard_negatives=0)


CONTRADICTIONS = {
  "no pairs": ({"rehearsal__num_pairs": 4}, "num_pairs=4, but no pairs; give --pairs and --pai"),
  "half of them": ({"rehearsal__num_pairs": 4, "pairs": "p"}, "no pairs; give --pairs_passages,"),
  "no room": ({"pairs": "p"}, "--pairs=p with rehearsal.num_pairs=0: no step has pairs; give"),
  "no weight": ({"rehearsal__weight": 0.0}, "weight=0.0; give counts of at least 0 and a weight"),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_contradictions_are_refused_before_it_begins(world, start, what):
  given, line = CONTRADICTIONS[what]
  with pytest.raises(ValueError, match=line):
    start("contradicted", **given)
  assert not (world / "contradicted").exists()
