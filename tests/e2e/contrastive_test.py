"""Contrastive training on every kind of pairs."""

import numpy as np
import pytest

from realm_jax import main

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def command(world):
  """`command(name, **keywords)` is the command line of a contrastive training."""

  def make(name, **keywords):
    given = {
      "gin_file": world / "tiny.gin",
      "workdir": world / name,
      "passages": world / "passages",
      "num_steps": 100,
      "batch_size": 16,
      "query_length": 16,
      "passage_length": 32,
      "learning_rate": 3e-3,
      "pooling": "mean",
      "initializer_range": 0.2,
      "dropout_rate": 0,
      "projection_dropout_rate": 0,
      **keywords,
    }
    return ["pretrain_contrastive", *(f"--{k}={v}" for k, v in given.items())]

  return make


def learns(rows):
  """Returns whether queries find their passages more often at the end than at the beginning."""
  found = [row["loss/accuracy"] for row in rows]
  return np.mean(found[-20:]) > np.mean(found[:20]) + 0.1


@pytest.mark.parametrize("pairs", ["inverse_cloze", "independent_crops"])
def test_pairs_made_while_training_are_learned(command, rows, pairs):
  assert main.main(command(f"pairs_{pairs}", pairs=pairs, removal_rate=0.5)) == 0
  assert learns(rows(f"pairs_{pairs}"))


def test_a_scale_multiplies_the_scores(command, rows):
  """Of unit vectors, whose scores lie between -1 and 1, a loss far from that of chance needs it."""
  unit = {"output": "unit_length", "projection_size": 16, "num_steps": 1}
  assert main.main(command("unit_scaled", **unit)) == 0
  assert main.main(command("unit_plain", score_scale=1, **unit)) == 0
  plain, scaled = (rows(name)[0]["loss/total"] for name in ("unit_plain", "unit_scaled"))
  assert abs(plain - np.log(16)) <= 2
  assert scaled != pytest.approx(plain, rel=1e-3)


FOUND = {
  "recurring_spans": [],
  "bm25_imitation": ["--num_queries=400"],
  "masked_lexical": ["--num_queries=400"],
}


@pytest.mark.parametrize("pairs", FOUND)
def test_pairs_found_before_training_are_learned(world, command, rows, pairs):
  if pairs != "recurring_spans":
    pytest.importorskip("bm25s", reason="the extra bm25 is not installed")
  output = world / f"found_{pairs}"
  given = [f"--passages={world / 'passages'}", f"--output={output}", "--query_length=16"]
  assert main.main(["prepare_pairs", f"--task={pairs}", *given, *FOUND[pairs]]) == 0
  assert not (world / f"found_{pairs}.unfinished").exists()
  name = f"pairs_{pairs}"
  assert main.main(command(name, pairs=pairs, examples=output)) == 0
  assert learns(rows(name))
