"""Evaluates a checkpoint on questions with known answers: recall@k and exact match."""

import dataclasses
import json
import os
import random
from typing import Literal

from realm_jax import atomic_files
from realm_jax.data import questions as question_files
from realm_jax.evaluation import masked_spans
from realm_jax.jobs import progress, saved_models
from realm_jax.jobs.retrieval_setup import open_predictor


def evaluate(
  *,
  checkpoints: str,
  passages: str,
  index: str,
  questions: str,
  output: str | None = None,
  step: int | None = None,
  generation: int | None = None,
  book: Literal["open", "closed"] = "open",
  recall_at: int = 5,
  batch_size: int = 32,
  max_questions: int | None = None,
) -> dict:
  """Answers masked questions and compares with the references.

  Args:
    checkpoints: directory of the checkpoints of a pre-training.
    passages: directory of the knowledge corpus to answer from.
    index: directory of the index generations of that corpus.
    questions: JSON Lines with `id`, `text`, `spans`, `answer`, and optional `passage`, `kind`.
    output: directory for `figures.json` and `predictions.jsonl`; none: only print the figures.
    step: checkpoint; none: the newest.
    generation: index generation; none: the newest.
    book: "open" retrieves, "closed" reads with the null passage alone.
    recall_at: k of recall@k.
    batch_size: questions answered at once.
    max_questions: of more questions, so many are drawn, always the same ones; none: all are asked.

  Returns:
    The figures, over all questions and by group.

  Raises:
    FileNotFoundError: if an input is missing.
    ValueError: if checkpoint, corpus, index and questions do not fit each other.
  """
  saved = saved_models.load(checkpoints, step=step)
  predictor, store, tokenizer = open_predictor(
    saved, passages=passages, index=index, generation=generation
  )
  batches = question_files.question_batches(
    _drawn(question_files.read_questions(questions), max_questions),
    tokenizer=tokenizer,
    query_length=saved.description.query_length,
    max_masks=saved.description.max_masks,
    batch_size=batch_size,
  )
  predictions = masked_spans.predict(
    predictor,
    progress.track(batches, what="batches of questions"),
    passage_text=store.text,
    encode_batch=tokenizer.encode_batch,
    decode=tokenizer.decode,
    recall_at=recall_at,
    without_retrieval=book == "closed",
  )
  figures = masked_spans.figures(predictions, recall_at=recall_at)
  if output is not None:
    os.makedirs(output, exist_ok=True)
    content = json.dumps(figures, indent=2)
    atomic_files.write_text(os.path.join(output, "figures.json"), content + "\n")
    lines = (json.dumps(_record(prediction), ensure_ascii=False) for prediction in predictions)
    atomic_files.write_text(os.path.join(output, "predictions.jsonl"), "\n".join(lines) + "\n")
  print(f"step {saved.step}, {book} book: {json.dumps(figures)}", flush=True)
  return figures


def _drawn(questions: list, max_questions: int | None) -> list:
  if max_questions is None or len(questions) <= max_questions:
    return questions
  return random.Random(0).sample(questions, max_questions)


def _record(prediction: masked_spans.Prediction) -> dict:
  return {
    "query": prediction.question.masked_text,
    "reference": prediction.question.answer,
    **{name: value for name, value in dataclasses.asdict(prediction).items() if name != "question"},
  }
