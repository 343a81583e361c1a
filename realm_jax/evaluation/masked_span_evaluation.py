"""Evaluates a checkpoint or BM25 on masked sentences with known answers."""

import dataclasses
import json
import os
from collections.abc import Sequence

from realm_jax import atomic_files, progress
from realm_jax.data.questions import Question, masked_query_batches
from realm_jax.evaluation import masked_spans
from realm_jax.evaluation.asking import Asking
from realm_jax.evaluation.systems import open_system
from realm_jax.labels import right_passages
from realm_jax.saved import saved_models
from realm_jax.saved.answering_models import mask_filler
from realm_jax.saved.opening import Sources, open_sources


def evaluate_masked_spans(
  questions: Sequence[Question], *, sources: Sources, asking: Asking, output: str | None
) -> dict:
  """Ranks passages for the masked sentences, and fills their masks if the model can.

  See `realm evaluate` for the arguments.
  """
  spare = right_passages.spare(questions)
  retrieve_k = max(asking.recall_at) + spare
  if sources.checkpoints and saved_models.load(sources.checkpoints, step=sources.step).fills_masks:
    of, predictions = _fill(questions, sources, asking, retrieve_k=retrieve_k, spare=spare)
  else:
    if asking.book == "closed":
      raise ValueError("book=closed, but nothing is read; give --checkpoints of `realm pretrain`")
    system = open_system(sources, asking)
    of, text = system.measured["retriever"], system.corpus.store.text
    predictions = masked_spans.rank_passages(system.retrieve, questions, text=text, k=retrieve_k)
  figures = masked_spans.figures(predictions, recall_at=asking.recall_at)
  if output is not None:
    atomic_files.write_json(os.path.join(output, "figures.json"), figures)
    lines = (
      json.dumps(_record(prediction, asking), ensure_ascii=False) for prediction in predictions
    )
    atomic_files.write_text(os.path.join(output, "predictions.jsonl"), "\n".join(lines) + "\n")
  print(f"{of}, {_line(figures, book=asking.book)}", flush=True)
  return figures


def _fill(
  questions: Sequence[Question], sources: Sources, asking: Asking, *, retrieve_k: int, spare: int
) -> tuple[str, list[masked_spans.Prediction]]:
  opened = open_sources(sources)
  description = opened.saved.description
  batches = masked_query_batches(
    questions,
    tokenizer=opened.corpus.tokenizer,
    query_length=description.query_length,
    max_masks=description.max_masks,
    batch_size=asking.batch_size,
  )
  predictions = masked_spans.predict(
    mask_filler(opened),
    progress.track(batches, what="batches of questions"),
    retrieve_k=retrieve_k,
    without_retrieval=asking.book == "closed",
    spare=spare,
  )
  return f"step {opened.saved.step}", predictions


def _line(figures: dict, *, book: str) -> str:
  """Summarizes the metrics in one line."""
  groups = {name: figure for name, figure in figures.items() if isinstance(figure, dict)}
  parts = []
  if "exact_match" in figures:
    by_group = ", ".join(f"{name} {group['exact_match']:.3f}" for name, group in groups.items())
    parts.append(f"exact match {figures['exact_match']:.3f}" + (f" ({by_group})" if groups else ""))
  if book == "open":  # a closed book has no passages
    parts += [f"{k} {figure:.3f}" for k, figure in figures.items() if k.startswith("recall@")]
  return f"{book} book, {figures['questions']} questions: {', '.join(parts)}"


def _record(prediction: masked_spans.Prediction, asking: Asking) -> dict:
  filled = prediction.filled
  return {
    "id": prediction.question.id,
    "query": prediction.question.masked_text,
    "reference": prediction.question.answer,
    "rank": prediction.rank,
    **(dataclasses.asdict(filled) if filled is not None else {}),
    "figures": prediction.figures(asking.recall_at),
  }
