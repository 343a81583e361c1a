"""Evaluates a checkpoint, BM25 or a file of predictions on questions with known answers."""

import random
from collections.abc import Sequence
from typing import Literal

from realm_jax.data.questions import read_questions
from realm_jax.evaluation.asking import Asking
from realm_jax.evaluation.masked_span_evaluation import evaluate_masked_spans
from realm_jax.evaluation.open_qa import RECALL_AT
from realm_jax.evaluation.open_qa_evaluation import evaluate_open_qa
from realm_jax.saved.opening import Sources


def evaluate(
  *,
  questions: str,
  checkpoints: str | None = None,
  passages: str | None = None,
  index: str | None = None,
  retriever: Literal["dual_encoder", "bm25"] = "dual_encoder",
  predictions: str | None = None,
  against: str | None = None,
  train_questions: str | None = None,
  output: str | None = None,
  formats: Sequence[str] = (),
  step: int | None = None,
  generation: int | None = None,
  search: Literal["auto", "exact"] = "auto",
  answer_text: Literal["raw", "spaced"] = "raw",
  book: Literal["open", "closed"] = "open",
  recall_at: Sequence[int] = RECALL_AT,
  batch_size: int = 32,
  max_questions: int | None = None,
) -> dict:
  """Asks questions, or has masks filled, and compares with the references.

  Questions are answered by a checkpoint of `realm finetune`; any other checkpoint, and BM25, only
  retrieve. The printed card, and what `output` holds, names what was measured.

  Args:
    questions: JSON Lines of questions (`question`, `answer`), or of masked sentences (`text`,
      `spans`, `answer`) for a pre-trained checkpoint.
    checkpoints: directory of checkpoints.
    passages: directory of the knowledge corpus to answer from.
    index: directory of the index generations of that corpus.
    retriever: "bm25" takes no checkpoint and no index.
    predictions: a file of predictions to score, instead of asking.
    against: a file of predictions for the same questions, to compare with question by question.
    train_questions: the training questions, to tell answers seen in training from others.
    output: directory for `figures.json`, `card.md` and `predictions.jsonl`; none: only print.
    formats: of the passages retrieved, written there as well: "dpr" (Dense Passage Retrieval's
      JSON, with all texts), "trec" (a run file).
    step: checkpoint; none: the newest.
    generation: index generation; none: the newest.
    search: "exact" searches exactly whatever the index is, "auto" as it was built.
    answer_text: "raw" slices the passage's text, "spaced" parts words from punctuation as the
      original did.
    book: of masked sentences, "closed" reads with the null passage alone.
    recall_at: k's of recall@k.
    batch_size: questions asked at once.
    max_questions: of more questions, so many are drawn, always the same ones; none: all are asked.

  Returns:
    The figures, over all questions and by group.

  Raises:
    FileNotFoundError: if an input is missing.
    ValueError: if checkpoint, corpus, index and questions do not fit each other.
  """
  asked = _drawn(read_questions(questions), max_questions)
  sources = Sources(
    checkpoints=checkpoints or "",
    passages=passages or "",
    index=index or "",
    step=step,
    generation=generation,
    search=search,
  )
  asking = Asking(
    retriever=retriever,
    answer_text=answer_text,
    book=book,
    recall_at=recall_at,
    batch_size=batch_size,
  )
  if asked[0].span is None:
    return evaluate_open_qa(
      asked,
      questions_file=questions,
      sources=sources,
      asking=asking,
      predictions=predictions,
      against=against,
      train_questions=train_questions,
      output=output,
      formats=formats,
    )
  if sources.missing():
    raise ValueError(
      f"{questions} holds masked sentences; name the checkpoints, passages and index to fill them"
    )
  return evaluate_masked_spans(asked, sources=sources, asking=asking, output=output)


def _drawn(questions: list, max_questions: int | None) -> list:
  if max_questions is None or len(questions) <= max_questions:
    return questions
  return random.Random(0).sample(questions, max_questions)
