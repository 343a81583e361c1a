"""The builder writes a scorecard of each generation, and the report shows it."""

import json
import pathlib

import pytest

from realm_jax.data.questions import read_questions
from realm_jax.index import generations
from realm_jax.jobs.answering.report import report
from realm_jax.jobs.training.build_index import build_index

pytestmark = pytest.mark.timeout(600)


def test_a_generation_of_the_same_parameters_has_the_same_scorecard_and_no_drift(world, tmp_path):
  index = str(tmp_path / "index")
  cards = []
  for probes in ("heldout.jsonl", "heldout.jsonl", "heldout_questions.jsonl"):
    build_index(
      checkpoints=str(world / "first" / "checkpoints"),
      passages=str(world / "passages"),
      index=index,
      probe_questions=str(world / "almanac" / probes),
    )
    cards.append(generations.read_manifest(index, len(cards)).scorecard)
  first, again, asked = cards
  names = ["recall@2", "null_mass", "entropy", "hub_share", "hub_skewness"]
  assert list(first) == names and list(again) == list(asked) == [*names, "drift", "kept_share"]
  assert {name: again[name] for name in names} == first
  assert again["drift"] == pytest.approx(0, abs=1e-5) and again["kept_share"] == 1
  assert 0 < first["null_mass"] < 1 and first["entropy"] > 0 and 0 < first["hub_share"] <= 1
  assert asked["drift"] == pytest.approx(0, abs=1e-5) and asked["kept_share"] == 1
  (pathlib.Path(index) / "2" / "manifest" / "metadata").write_text("torn")
  build_index(
    checkpoints=str(world / "first" / "checkpoints"),
    passages=str(world / "passages"),
    index=index,
    probe_questions=str(world / "almanac" / "heldout.jsonl"),
  )
  # What it would be compared with is damaged.
  assert generations.read_manifest(index, 3).scorecard == first
  probes = read_questions(str(world / "almanac" / "heldout.jsonl"))
  assert (first["recall@2"] * min(len(probes), 500)) % 1 == pytest.approx(0, abs=1e-6)

  rows = [{"step": step, "seconds": step, "loss/total": 1.0} for step in (1, 2)]
  swaps = [{"step": 0, "generation": 0, "training_step": 0, "seconds": 0, "created": 0}]
  for name, records in (("metrics", rows), ("swaps", swaps)):
    (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records))
  page = open(report(str(tmp_path), index=index), encoding="utf-8").read()
  assert "kept share" in page and f"{first['entropy']:.3g}" in page
