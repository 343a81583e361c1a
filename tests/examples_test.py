"""What stands in examples/, run at tiny size; the replay of a trace is an end-to-end test."""

import dataclasses
import importlib
import json
import pathlib
import re

import numpy as np
import optax
import pytest

from examples import own_loop, own_objective, own_searcher
from realm_jax import main
from realm_jax.command_line import configuration
from realm_jax.index.vectors.exact_searcher import ExactSearcher
from tests.training.pretraining_test import make_pretraining

TINY = {
  "invented_entities": 150,
  "vocabulary_size": 1024,
  "width": 16,
  "warm_up_steps": 1,
  "reading_steps": 1,
  "steps": 3,
  "checkpoint_every": 1,
  "questions": 4,
}
EXAMPLES = sorted((pathlib.Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_fits_on_a_screen(file):
  assert len(file.read_text("utf-8").splitlines()) <= 60


@pytest.mark.parametrize("name", ["own_encoder", "own_objective", "own_searcher"])
def test_the_gin_file_of_an_example_configures_a_training(name, tmp_path):
  documented = importlib.import_module(f"examples.{name}").__doc__ or ""
  file = tmp_path / "own.gin"
  file.write_text("\n".join(re.findall(r"^ {2,}(.+)$", documented, re.MULTILINE)))
  job = main.find("pretrain", main.JOBS)
  configuration.configure(job, gin_files=[str(file)], values={})
  assert f"@{name}." in configuration.gin.config_str()


@pytest.mark.slow
def test_a_loop_of_ones_own_learns_and_a_term_of_ones_own_counts(make_retrieved_batch):
  batch = make_retrieved_batch(0, queries=8, passages=2, masks=2, vocab_size=32)
  spread = dataclasses.replace(make_pretraining(), objective=own_objective.spread_out(weight=5.0))
  found, evaluate = {}, make_pretraining().evaluation_program()
  for name, training in (("realm", make_pretraining()), ("spread out", spread)):
    params, losses = own_loop.train(training, [batch] * 20, optax.adam(1e-2))
    found[name] = float(evaluate(params, batch)["retrieval_entropy"].value)
    assert np.mean(losses[-5:]) < losses[0] - 0.1
  assert found["spread out"] > found["realm"] + 0.01


@pytest.mark.parametrize("k", [3, 12])
def test_a_searcher_of_ones_own_finds_what_exact_search_does(k):
  random = np.random.default_rng(0)
  embeddings_NxE, queries_BxE = random.integers(-3, 4, (9, 4)), random.integers(-3, 4, (5, 4))
  expected, found = (
    make(embeddings_NxE.astype(np.float32)).search(queries_BxE.astype(np.float32), k)
    for make in (ExactSearcher, own_searcher.NumpySearcher)
  )
  np.testing.assert_array_equal(found.ids_BxK, expected.ids_BxK)
  np.testing.assert_array_equal(found.scores_BxK, expected.scores_BxK)


def cells_of(name):
  return json.loads((EXAMPLES[0].parent / name).read_text("utf-8"))["cells"]


def run_notebook(name, *, changed):
  """Runs the cells of a notebook; settings that a cell makes are changed after it."""
  names = {}
  for cell in cells_of(name):
    if cell["cell_type"] == "code":
      exec("".join(cell["source"]), names)
      names |= {key: value for key, value in changed.items() if key in names}
  return names


def test_a_notebook_searches_a_folder_of_texts_and_prints_what_it_shows(
  tmp_path, monkeypatch, capsys
):
  monkeypatch.chdir(tmp_path)
  outputs = [out for cell in cells_of("own_corpus.ipynb") for out in cell.get("outputs", ())]
  for _ in range(2):
    names = run_notebook("own_corpus.ipynb", changed={})
    assert capsys.readouterr().out == "".join("".join(out.get("text", "")) for out in outputs)
  assert [hit.id for hit in names["kb"].search("rudder")] == ["n1"] and len(names["kb"]) == 5


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_notebook_pretrains_and_swaps_indexes_in(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv("MPLBACKEND", "agg")
  first, second = (run_notebook("realm_from_scratch.ipynb", changed=TINY) for _ in range(2))
  assert TINY.keys() <= first.keys()
  assert len(first["rows"]) > 1 and second["rows"][: len(first["rows"])] == first["rows"]
