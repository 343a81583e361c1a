"""Pre-training in whose steps the dual encoder goes on learning from pairs."""

import json

import pytest

from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus
from realm_jax.jobs.preparation.prepare_pairs import prepare_pairs
from realm_jax.pairs.found_pairs import PairSettings

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def rehearsal(world):
  """The keywords of a training that rehearses pairs, of another corpus than it searches."""
  documents, passages, pairs = (str(world / f"recurring{n}") for n in (".jsonl", "", "_pairs"))
  with open(documents, "w", encoding="utf-8") as file:
    for i, first in enumerate("ABCDEFGHIJKL"):
      decades = (" ".join(str(1500 + 10 * k + n) for n in range(8)) for k in range(4))
      text = "".join(f"From {years} {first}ome {first}ane {years[::-1]}. " for years in decades)
      file.write(json.dumps({"id": str(i), "title": f"tower {i}", "text": text}) + "\n")
  prepare_corpus(
    input=documents,
    output=passages,
    vocabulary=str(world / "vocabulary"),
    chunking=ChunkingConfig(max_passage_length=32),
  )
  settings = PairSettings(query_length=32, num_right=2, num_wrong=1)
  prepare_pairs(task="recurring_spans", passages=passages, output=pairs, settings=settings)
  return {"pairs": pairs, "pairs_passages": passages, "rehearsal__num_pairs": 8}


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
