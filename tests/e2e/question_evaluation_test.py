"""Evaluation on questions: of a checkpoint that never saw one, and of a fine-tuned one."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.opening import Sources
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.question_batches import question_batches
from realm_jax.data.questions import read_questions
from realm_jax.devices import partitioning
from realm_jax.evaluation import run_comparison
from realm_jax.evaluation.answer_matching import match_answers
from realm_jax.evaluation.systems import Asking
from realm_jax.index import assembly
from realm_jax.index.vectors.exact_searcher import ExactSearcher
from realm_jax.jobs.answering.evaluate import evaluate
from realm_jax.text import tokenization

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def given(world):
  return {
    "questions": str(world / "almanac" / "heldout_questions.jsonl"),
    "max_questions": 40,
    "asking": Asking(recall_at=(1, 5, 20)),
  }


@pytest.fixture(scope="module")
def sources(world):
  return Sources(
    checkpoints=str(world / "first" / "checkpoints"),
    passages=str(world / "passages"),
    index=str(world / "index"),
    searcher=ExactSearcher,
  )


@pytest.fixture(scope="module")
def zero_shot(world, given, sources):
  """The figures of the checkpoint of step 0, and its output directory."""
  output = world / "zero_shot"
  return evaluate(**given, sources=sources, output=str(output)), output


def test_zero_shot_recall_is_that_of_a_search_by_hand(given, sources, zero_shot):
  figures, output = zero_shot
  assert set(figures) >= {"questions", "recall@1", "recall@5", "recall@20"}
  assert "exact_match" not in figures
  embeddings_NxE = np.asarray(assembly.load_embeddings(sources.index, 0), np.float32)
  store = PassageStore(sources.passages)
  asked = {question.id: question for question in read_questions(given["questions"])}
  lines = [json.loads(line) for line in (output / "predictions.jsonl").read_text().splitlines()]
  questions = [asked[line["id"]] for line in lines]
  saved = saved_models.load(sources.checkpoints)
  measured = json.loads((output / "figures.json").read_text())["measured"]
  assert measured["index"].endswith(
    f", generation 0 of step 0 of run {saved.run}, search by ExactSearcher"
  )
  encoder, params = saved.retriever(partitioning.make_mesh())
  tokenizer = tokenization.load(f"{sources.passages}/vocabulary")
  ((asked_together, _),) = question_batches(
    [question.text for question in questions],
    tokenizer=tokenizer,
    query_length=saved.description.query_length,
    batch_size=40,
  )
  queries_BxE = jax.jit(encoder.apply, static_argnames=("deterministic", "method"))(
    {"params": params["dual_encoder"]},
    asked_together.query,
    deterministic=True,
    method="encode_query",
  )
  scores_BxN = np.asarray(queries_BxE) @ embeddings_NxE.T
  best_BxK = np.argsort(-scores_BxN, axis=1, kind="stable")[:, :20]
  matcher = match_answers(questions, store=store)
  holds_BxK = matcher.contains(np.arange(len(questions)), best_BxK)
  for k in (1, 5, 20):
    assert figures[f"recall@{k}"] == pytest.approx(holds_BxK[:, :k].any(axis=1).mean(), abs=1e-4)


def test_a_hybrid_retriever_with_all_the_weight_on_one_side_is_that_side(
  world, given, sources, zero_shot
):
  figures_of = {
    weight: evaluate(
      **given,
      sources=dataclasses.replace(sources, retriever="hybrid", dense_weight=weight),
    )
    for weight in (0.0, 1.0)
  }
  bm25 = Sources(passages=sources.passages, retriever="bm25")
  for weight, alone in ((1.0, zero_shot[0]), (0.0, evaluate(**given, sources=bm25))):
    for name in ("recall@1", "recall@5"):
      assert figures_of[weight][name] == alone[name]


def test_a_fine_tuned_checkpoint_answers_and_is_compared(
  world, given, sources, zero_shot, tuned_whole
):
  training = str(world / "almanac" / "training_questions.jsonl")
  output = world / "evaluation"
  _, zero_output = zero_shot
  figures = evaluate(
    **given,
    sources=dataclasses.replace(sources, checkpoints=tuned_whole, searcher=None),
    train_questions=training,
    output=str(output),
  )
  assert {"reader_oracle", "exact_match", "exact_match_corrected", "f1"} <= set(figures)
  groups = figures["groups"]
  assert {"real", "retrieval_hit", "retrieval_miss", "answer_seen"} <= set(groups)
  hits = groups["retrieval_hit"]["questions"]
  assert hits == round(figures["reader_oracle"] * 40)
  card = json.loads((output / "figures.json").read_text())
  assert "tuned_whole/checkpoints, step 6 of run " in card["measured"]["checkpoint"]
  assert "generation 0" in card["measured"]["index"]
  compared = run_comparison.compare(str(output), str(zero_output)).splitlines()[2:]
  assert {row.split(" | ")[1] for row in compared} == {"recall@1", "recall@5", "recall@20"}
