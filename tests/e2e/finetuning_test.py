"""Fine-tuning, from the checkpoint of a pre-training to answers in a file."""

import json

import flax.traverse_util
import numpy as np
import pytest

from realm_jax.checkpoints import orbax_files
from realm_jax.checkpoints.opening import Sources
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.index.vectors.searcher import SearcherConfig
from realm_jax.jobs.answering.ask import ask
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.retrieval.index_refresher import RefreshConfig

pytestmark = pytest.mark.timeout(600)


def params_of(directory, *parts):
  path = orbax_files.resolve(directory)
  arrays = {
    tuple(name): np.zeros(shape, np.float32)
    for (top, *name), shape in orbax_files.saved_arrays(path).items()
    if top == "params" and tuple(name[: len(parts)]) == parts
  }
  restored = orbax_files.restore_params(path, flax.traverse_util.unflatten_dict(arrays))
  for part in parts:
    restored = restored[part]
  return restored


@pytest.mark.usefixtures("tuned_whole")
def test_a_resumed_fine_tuning_has_the_losses_of_one_never_stopped(tune, world, losses):
  tune("tuned_halves", num_steps=3, checkpoint_every=3)
  tune("tuned_halves", num_steps=6, checkpoint_every=3)
  samples = [json.loads(line) for line in open(world / "tuned_whole" / "samples.jsonl")]
  assert [row["step"] for row in samples] == [4, 6]
  assert all(row["samples/retrieved"].count("| score | passage |") == 4 for row in samples)
  whole = losses("tuned_whole")
  assert len(whole) == 6 and whole[1] > 0
  assert losses("tuned_halves") == whole


@pytest.mark.usefixtures("tuned_whole")
def test_the_passage_encoder_stands_still_and_the_query_encoder_learns(tune, world):
  first = params_of(world / "first" / "checkpoints", "dual_encoder", "tower", "projection")
  passage, query = (
    params_of(world / "tuned_whole" / "checkpoints", "dual_encoder", tower, "projection")
    for tower in ("passage_tower", "query_tower")
  )
  np.testing.assert_array_equal(passage["kernel"], first["kernel"])
  assert np.abs(query["kernel"] - first["kernel"]).max() > 0


@pytest.mark.usefixtures("tuned_whole")
def test_a_knowledge_base_reads_with_what_the_workdir_has(world):
  workdir = str(world / "tuned_whole")
  document = {"id": "1", "text": "The currency of Japan is the yen."}
  base = KnowledgeBase.create(world / "kb", [document], reader=workdir, encoder=workdir)
  answer = base.answer("What is the currency of Japan?")
  assert answer.text and answer.text in document["text"]


@pytest.mark.usefixtures("tuned_whole")
def test_the_best_checkpoint_by_a_named_figure_answers_questions(world, rows, caplog):
  dev, few = world / "almanac" / "heldout_questions.jsonl", world / "few_questions.jsonl"
  few.write_text("".join(dev.read_text("utf-8").splitlines(keepends=True)[::20]), "utf-8")
  evaluated = {row["step"]: row["dev/recall@5"] for row in rows("tuned_whole") if "dev/f1" in row}
  assert list(evaluated) == [4, 6]
  best = orbax_files.read_metadata(orbax_files.resolve(world / "tuned_whole" / "best"))["best"]
  assert best["value"] == max(evaluated.values())
  sources = Sources(
    checkpoints=str(world / "tuned_whole" / "best"),
    passages=str(world / "passages"),
    index=str(world / "index"),
  )
  output = world / "answers.jsonl"
  ask(sources=sources, questions=str(few), output=str(output), answers=2)
  assert "embedded by" not in caplog.text  # the passage encoder is frozen
  asked = [json.loads(line) for line in open(few, encoding="utf-8")]
  lines = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
  assert [line["question"] for line in lines] == [line["question"] for line in asked]
  for line in lines:
    assert line["prediction"] == line["answers"][0]["text"]
    assert len(line["passages"]) == 8
  alone = ask(asked[4]["question"], sources=sources, answers=2)
  assert [a["text"] for a in alone["answers"]] == [a["text"] for a in lines[4]["answers"]]


@pytest.mark.slow
def test_everything_trains_while_the_index_follows(tune, build, world, rows):
  index = str(world / "followed_questions")
  settings = {
    "passage_encoder": "trained",
    "index": index,
    "refresh": RefreshConfig(poll_seconds=0.05),
  }
  tune("tuned_all", num_steps=0, **settings)
  build("tuned_all", index, builder=BuilderConfig(searcher=SearcherConfig(kind="exact")))
  tune("tuned_all", num_steps=3, **settings)
  before = params_of(world / "first" / "checkpoints", "dual_encoder", "tower")
  after = params_of(world / "tuned_all" / "checkpoints", "dual_encoder", "tower")
  assert np.abs(after["projection"]["kernel"] - before["projection"]["kernel"]).max() > 0
  assert rows("tuned_all")[-1]["index/staleness_steps"] == 2  # of the batch of the third step


@pytest.mark.usefixtures("tuned_whole")
def test_a_start_may_be_mixed_of_two_checkpoints(tune, world):
  # The first rate of a warm-up is 0: what is saved is the start.
  places = {"dual_encoder": "first", "span_reader": "tuned_whole"}
  start = [f"{world / name / 'checkpoints'}:{part}" for part, name in places.items()]
  tune("tuned_mixed", num_steps=1, start=start)

  def kernel(name, *parts):
    return params_of(world / name / "checkpoints", *parts)["kernel"]

  head = "span_reader", "span_score"
  np.testing.assert_array_equal(kernel("tuned_mixed", *head), kernel("tuned_whole", *head))
  np.testing.assert_array_equal(
    kernel("tuned_mixed", "dual_encoder", "query_tower", "projection"),
    kernel("first", "dual_encoder", "tower", "projection"),
  )


def test_an_index_of_another_passage_encoder_is_refused(tune, world, start):
  start("drawn_otherwise", num_steps=0, seed=1)
  with pytest.raises(ValueError, match="built with another passage encoder"):
    tune("tuned_wrong", start=[str(world / "drawn_otherwise" / "checkpoints")])


@pytest.mark.usefixtures("tuned_whole")
def test_what_cannot_go_on_or_be_chosen_is_refused(tune, world):
  other = {"questions": str(world / "almanac" / "heldout_questions.jsonl")}
  with pytest.raises(ValueError, match="other batches .*questions_digest"):
    tune("tuned_whole", **other)
  dev = {"dev_questions": other["questions"], "max_dev_questions": 10}
  with pytest.raises(ValueError, match="best_metric='recall@50'; choose one of recall@1, recall@5"):
    tune("tuned_by_nothing", best_metric="recall@50", **dev)
  late = RefreshConfig(max_staleness_steps=99, when_late="wait")
  with pytest.raises(ValueError, match="max_staleness_steps=99 with checkpoint_every=100"):
    tune("tuned_late", passage_encoder="trained", refresh=late)
