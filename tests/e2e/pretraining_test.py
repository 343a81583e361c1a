"""Pre-training from raw text to answers, on a few hundred facts and a model of a few rows."""

import dataclasses
import os
import pathlib
import shutil

import pytest

from realm_jax import main
from realm_jax.checkpoints import orbax_files, saved_models
from realm_jax.checkpoints.opening import PublishedGenerations, Sources, open_sources
from realm_jax.corpus.passage_store import CORPUS, PassageStore
from realm_jax.data.prepared_examples import EXAMPLES
from realm_jax.demo.make_almanac import ALMANAC
from realm_jax.devices import directory_lock
from realm_jax.index import generations
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.jobs.answering.evaluate import evaluate
from realm_jax.retrieval import passage_embedding
from realm_jax.text.wordpieces import VOCABULARY
from realm_jax.training.recipes.fixed_validation import FixedValidation
from tests.e2e.conftest import TINY

pytestmark = pytest.mark.timeout(600)


def test_an_evaluation_changes_no_training_and_keeps_the_best(world, start, losses, rows, capsys):
  start("unasked", num_steps=3)
  start("asked_between", num_steps=3, eval_corpus=str(world / "passages"), eval_every=1)
  assert losses("asked_between") == losses("unasked")
  (step,) = orbax_files.steps(world / "asked_between" / "best")
  asked = [row["eval/loss"] for row in rows("asked_between")]
  assert asked[step - 1] == min(asked)
  assert f"the best is best/{step} (eval/loss {min(asked):.4f})" in capsys.readouterr().out


def test_what_improves_nothing_leaves_the_warm_start_as_the_best(world, start, monkeypatch, capsys):
  evaluate = FixedValidation.__call__
  # A rate of zero would do as well, with a program of its own.
  same = lambda self, params: {**evaluate(self, params), "eval/loss": 1.0}  # noqa: E731
  monkeypatch.setattr(FixedValidation, "__call__", same)
  start("resting", num_steps=2, eval_corpus=str(world / "passages"), eval_every=1)
  assert orbax_files.steps(world / "resting" / "best") == [0]
  assert "nothing is better than the warm start, best/0 (eval/loss" in capsys.readouterr().out


def test_the_warm_start_of_a_dual_encoder(world, start, losses):
  checkpoints = str(world / "first" / "checkpoints")
  begun = {"num_steps": 1, "seed": 1}
  start("cold", **begun)
  start("warm", start=[f"{checkpoints}:dual_encoder"], **begun)
  start("spelled_out", start=[f"{checkpoints}:dual_encoder/tower=dual_encoder/tower"], **begun)
  assert losses("warm") == losses("spelled_out") != losses("cold")


def test_an_index_of_another_corpus_ends_the_wait(start, build, tmp_path):
  build("first", tmp_path / "index", passages="training")
  with pytest.raises(ValueError, match="index generation 0 does not fit: corpus_fingerprint is"):
    start("misled", index=str(tmp_path / "index"), generation=None, num_steps=1)


def test_a_checkpoint_answers_questions_and_a_second_generation_follows_the_first(
  world, start, build, caplog
):
  start("answering", num_steps=2, checkpoint_every=2)
  keywords = {
    "checkpoints": str(world / "answering" / "checkpoints"),
    "passages": str(world / "passages"),
    "index": str(world / "answering_index"),
  }
  for _ in range(2):
    build("answering", keywords["index"])
  assert generations.all_generations(keywords["index"]) == [0, 1]
  assert generations.read_manifest(keywords["index"], 1).training_step == 2
  figures = evaluate(
    sources=Sources(**keywords),
    questions=str(world / "almanac" / "heldout.jsonl"),
    max_questions=20,
  )
  assert "embedded by" not in caplog.text
  open_sources(Sources(**{**keywords, "index": str(world / "index")}))
  (warning,) = [message for message in caplog.messages if "embedded by" in message]
  run = saved_models.load(keywords["checkpoints"]).run
  assert "was embedded by step 0 of run" in warning and f"/2 (run {run}); index this" in warning
  assert figures["questions"] == 20
  assert 0 <= figures["exact_match"] <= 1


def test_a_newest_generation_that_is_damaged_is_made_anew(world, build, tmp_path):
  index = shutil.copytree(world / "index", tmp_path / "index")
  files = [
    path for path in pathlib.Path(index, "0", "arrays", "shard_00000").rglob("*") if path.is_file()
  ]
  longest = max(files, key=lambda path: path.stat().st_size)
  longest.write_bytes(longest.read_bytes()[:100])
  for _ in range(2):
    build("first", index, follow=True, until_step=0)
    # The second time there is nothing to do.
    assert generations.all_generations(str(index)) == [0, 1]
  generations.restore(str(index), 1, 0)


def test_an_index_that_another_training_left_is_kept_unless_it_may_be_taken_over(
  world, start, build, tmp_path
):
  start("begun_anew", num_steps=1, checkpoint_every=1)
  index, unfinished = tmp_path / "index", tmp_path / "index.unfinished" / "7"
  shutil.copytree(world / "index", index)
  unfinished.mkdir(parents=True)
  shard = generations.restore(str(index), 0, 0)
  manifest = dataclasses.replace(generations.read_manifest(str(index), 0), training_step=1)
  generations.publish(str(index), 1, [shard], manifest=manifest, keep=2)
  new, old = (
    saved_models.load(world / name / "checkpoints").run for name in ("begun_anew", "first")
  )
  for follow in (True, False):
    with pytest.raises(generations.ForeignGenerationError, match=f"{old} .* {new} .*--other_runs"):
      build("begun_anew", index, follow=follow)
  assert generations.all_generations(str(index)) == [0, 1] and unfinished.exists()
  accepting = BuilderConfig(other_runs="accept", keep=2)
  build("begun_anew", index, follow=True, until_step=1, builder=accepting)
  assert generations.all_generations(str(index)) == [1, 2]
  assert generations.read_manifest(str(index), 2).run == new


@pytest.mark.parametrize("follow", [True, False])
def test_an_index_of_another_corpus_is_left_alone(world, build, tmp_path, monkeypatch, follow):
  index = shutil.copytree(world / "index", tmp_path / "index")
  embedded = []
  monkeypatch.setattr(passage_embedding, "embed_passages", lambda *_, **__: embedded.append(1))
  own, other = (PassageStore(world / name).fingerprint for name in ("passages", "training"))
  with pytest.raises(generations.ForeignGenerationError, match=f"{own}.*{other}.* give --index"):
    accepting = BuilderConfig(other_runs="accept", keep=1)
    build("first", index, passages="training", builder=accepting, follow=follow)
  assert generations.all_generations(str(index)) == [0] and not embedded


def test_an_index_is_searched_by_the_run_that_it_was_made_from_unless_others_are_accepted(
  world, start, build, tmp_path
):
  start("own", num_steps=1, checkpoint_every=1)
  directory = str(world / "own" / "checkpoints")
  run = orbax_files.run_of(directory)
  build("own", tmp_path)

  def load(index, **settings):
    description = saved_models.load(directory).description
    published = PublishedGenerations(index=str(index), description=description, run=run, **settings)
    return published.load(0).training_step

  assert load(tmp_path) == 1
  theirs = orbax_files.run_of(str(world / "first" / "checkpoints")).name
  refused = f"from step 0 of run {theirs}, and this is run {run.name}; build one with"
  with pytest.raises(generations.ForeignGenerationError, match=refused):
    load(world / "index")
  assert load(world / "index", other_runs="accept") == 0
  start("own", num_steps=2)
  assert orbax_files.run_of(directory) == run
  for step in (1, 2):
    shutil.rmtree(os.path.join(directory, str(step)))
  with pytest.raises(generations.ForeignGenerationError, match=f"from step 1 of run {run.name}"):
    load(tmp_path)  # from a step that the run was put back before
  assert load(tmp_path, other_runs="accept") == 0


@pytest.mark.parametrize(
  ("job", "directory"), [("build_index", "index"), ("pretrain", "workdir")], ids=["index", "run"]
)
def test_a_second_job_in_a_directory_ends_in_one_line(world, tmp_path, capsys, job, directory):
  flags = {"passages": world / "passages", directory: tmp_path / "out"}
  if job == "build_index":
    flags["checkpoints"] = world / "first" / "checkpoints"
  else:
    flags |= {"gin_file": TINY, "corpus": world / "training", "index": world / "index"}
    flags["num_steps"] = 0
  command = [job, *(f"--{name}={value}" for name, value in flags.items())]
  with directory_lock.hold(str(tmp_path / "out"), kind=directory_lock.WORKDIR):
    assert main.main(command) == 1
    assert os.listdir(tmp_path / "out") == [directory_lock.LOCK_FILE]
  line = capsys.readouterr().err.splitlines()[-1]
  assert line.startswith(f"realm {job}: process {os.getpid()} on ")
  assert f"is already working in {tmp_path / 'out'}" in line
  assert main.main(command) == 0


@pytest.mark.parametrize(
  ("name", "kind"),
  [("almanac", ALMANAC), ("vocabulary", VOCABULARY), ("passages", CORPUS), ("examples", EXAMPLES)],
)
def test_results_are_known_and_a_file_among_them_is_not_replaced(world, tmp_path, name, kind):
  copy = tmp_path / name
  shutil.copytree(world / name, copy)
  kind.check(copy)
  (copy / "thesis.txt").write_text("of years")
  with pytest.raises(ValueError, match=f"{copy} has thesis.txt"):
    kind.check(copy)
