"""Evaluates a pre-trained checkpoint on masked sentences with known answers."""

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Literal

from realm_jax import atomic_files, progress
from realm_jax.data import questions as question_files
from realm_jax.evaluation import masked_spans
from realm_jax.saved import saved_models
from realm_jax.saved.retrieval_setup import open_predictor


def evaluate_masked_spans(
  questions: Sequence[question_files.Question],
  *,
  checkpoints: str,
  passages: str,
  index: str,
  output: str | None,
  step: int | None,
  generation: int | None,
  book: Literal["open", "closed"],
  recall_at: Sequence[int],
  batch_size: int,
) -> dict:
  """Fills the masks and compares with the references; see `realm evaluate` for the arguments."""
  saved = saved_models.load(checkpoints, step=step)
  predictor, store, tokenizer = open_predictor(
    saved, passages=passages, index=index, generation=generation
  )
  batches = question_files.question_batches(
    questions,
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
    retrieve_k=max(recall_at),
    without_retrieval=book == "closed",
  )
  figures = masked_spans.figures(predictions, recall_at=recall_at)
  if output is not None:
    content = json.dumps(figures, indent=2)
    atomic_files.write_text(os.path.join(output, "figures.json"), content + "\n")
    lines = (json.dumps(_record(prediction), ensure_ascii=False) for prediction in predictions)
    atomic_files.write_text(os.path.join(output, "predictions.jsonl"), "\n".join(lines) + "\n")
  print(f"step {saved.step}, {book} book: {json.dumps(figures)}", flush=True)
  return figures


def _record(prediction: masked_spans.Prediction) -> dict:
  return {
    "query": prediction.question.masked_text,
    "reference": prediction.question.answer,
    **{name: value for name, value in dataclasses.asdict(prediction).items() if name != "question"},
  }
