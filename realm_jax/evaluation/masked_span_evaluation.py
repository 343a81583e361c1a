"""Evaluates a pre-trained checkpoint on masked sentences with known answers."""

import dataclasses
import json
import os
from collections.abc import Sequence

from realm_jax import atomic_files, progress
from realm_jax.data.questions import Question, masked_query_batches
from realm_jax.evaluation import masked_spans
from realm_jax.evaluation.asking import Asking
from realm_jax.saved.answering_models import mask_filler
from realm_jax.saved.opening import Sources, open_sources


def evaluate_masked_spans(
  questions: Sequence[Question], *, sources: Sources, asking: Asking, output: str | None
) -> dict:
  """Fills the masks and scores the answers; see `realm evaluate` for the arguments."""
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
    retrieve_k=max(asking.recall_at),
    without_retrieval=asking.book == "closed",
  )
  figures = masked_spans.figures(predictions, recall_at=asking.recall_at)
  if output is not None:
    content = json.dumps(figures, indent=2)
    atomic_files.write_text(os.path.join(output, "figures.json"), content + "\n")
    lines = (json.dumps(_record(prediction), ensure_ascii=False) for prediction in predictions)
    atomic_files.write_text(os.path.join(output, "predictions.jsonl"), "\n".join(lines) + "\n")
  print(f"step {opened.saved.step}, {_line(figures, book=asking.book)}", flush=True)
  return figures


def _line(figures: dict, *, book: str) -> str:
  """Summarizes the metrics in one line."""
  groups = {name: figure for name, figure in figures.items() if isinstance(figure, dict)}
  by_group = ", ".join(f"{name} {group['exact_match']:.3f}" for name, group in groups.items())
  line = f"{book} book, {figures['questions']} questions: exact match {figures['exact_match']:.3f}"
  line += f" ({by_group})" if groups else ""
  if book == "closed":  # which reads no passages
    return line
  recalls = (f"{k} {figure:.3f}" for k, figure in figures.items() if k.startswith("recall@"))
  return f"{line}, {', '.join(recalls)}"


def _record(prediction: masked_spans.Prediction) -> dict:
  return {
    "query": prediction.question.masked_text,
    "reference": prediction.question.answer,
    **{name: value for name, value in dataclasses.asdict(prediction).items() if name != "question"},
  }
