"""Pre-training on the passages of its own batch, without an index."""

import pytest

pytestmark = pytest.mark.timeout(600)
OF_BATCH = {"index": None, "generation": None, "num_from_batch": 2, "neighbours": 2}


def test_it_needs_no_index_and_a_resumed_run_has_the_losses_of_one_never_stopped(
  world, start, losses, rows
):
  read = {**OF_BATCH, "corpus": str(world / "passages"), "eval_corpus": str(world / "passages")}
  start("own_whole", num_steps=8, checkpoint_every=100, eval_every=4, eval_steps=2, **read)
  for num_steps in (3, 8):
    start("own_halves", num_steps=num_steps, checkpoint_every=3, eval_every=4, eval_steps=2, **read)
  whole = losses("own_whole")
  assert len(whole) == 8 and losses("own_halves") == whole
  asked = [
    {row["step"]: row["eval/loss"] for row in rows(name) if "eval/loss" in row}
    for name in ("own_whole", "own_halves")
  ]
  assert asked[0].keys() == {4, 8} and {step: asked[1][step] for step in (4, 8)} == asked[0]
  start("other_neighbours", num_steps=1, **{**read, "neighbours": 4})
  assert losses("other_neighbours")[1] != whole[1]


CONTRADICTIONS = {
  "index": ({"index": "an_index"}, "leaves nothing to search for; omit --index, or lower num_from"),
  "a replay": ({"replay": "a_trace"}, "omit --replay, or"),
  "a generation": (
    {"generation": 0, "spread_index": True, "retrieval_trace": True},
    "omit --generation, --spread_index, --retrieval_trace, or",
  ),
  "passages of an index": ({"num_from_batch": 1}, "or --num_from_batch=2 to read only passages of"),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_what_contradicts_it_is_refused_before_it_begins(world, start, what):
  given, line = CONTRADICTIONS[what]
  with pytest.raises(ValueError, match=line):
    start("contradicted", **{**OF_BATCH, **given})
  assert not (world / "contradicted").exists()
