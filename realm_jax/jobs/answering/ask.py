"""Fills a [MASK] or answers questions, and shows the contribution of each passage read."""

import dataclasses
import json
from collections.abc import Mapping

from realm_jax.answering.open_answerer import open_answerer, question_answerer
from realm_jax.answering.span_reader import QuestionAnswers
from realm_jax.checkpoints.opening import Sources, open_sources
from realm_jax.data.questions import read_questions
from realm_jax.foundations import atomic_files, choices, progress
from realm_jax.foundations.output_kinds import FileKind

_BATCH_SIZE = 32  # questions of a file
_ANSWERS = FileKind(name="a file of answers", start=r'\{.*"prediction": ')


def ask(
  query: choices.Words | None = None,
  *,
  sources: Sources = Sources(),
  answers: choices.Count = 3,
  target: choices.Words | None = None,
  max_answer_length: choices.Count = 4,
  questions: str | None = None,
  output: str | None = None,
) -> dict:
  """Prints the most likely answers, and the contributions of the passages to the first.

  A pre-trained model fills the mask of a sentence, trying answers of one to `max_answer_length`
  wordpieces. A fine-tuned model answers a question with a span of a passage. The most probable
  answer wins.

  Args:
    query: A sentence with one `[MASK]`, or a question.
    sources: The model, the corpus and its index.
    answers: Number of answers to show.
    target: An answer to explain instead of the most likely one.
    max_answer_length: Maximum wordpieces that fill a mask.
    questions: JSON Lines with `question`, plain or gzip, for a fine-tuned model, not one query.
    output: File for the answers to these and the passages read, JSON Lines (docs/open_qa.md).

  Returns:
    The explanation as plain values, and `answer`, the most likely one; of a file, nothing.
  """
  if (query is None) == (questions is None) or (questions is None) != (output is None):
    raise ValueError("give a query, or --questions, a file, with --output")
  if questions is not None and output is not None:
    if target is not None:
      raise ValueError(f"target={target!r} is for one query; omit it with --questions")
    _answer_file(questions, output, sources, num_answers=answers)
    return {}
  assert query is not None
  model = open_answerer(sources, max_answer_length=max_answer_length)
  (explanation,) = model.explain([query], answers=answers, target=target)
  print(explanation, flush=True)
  return {**dataclasses.asdict(explanation), "answer": explanation.answers[0].text}


def _answer_file(questions: str, output: str, sources: Sources, *, num_answers: int) -> None:
  _ANSWERS.check(output)
  answerer = question_answerer(open_sources(sources), batch_size=_BATCH_SIZE)
  entries = read_questions(questions, answers_known=False)
  batches = [entries[i : i + _BATCH_SIZE] for i in range(0, len(entries), _BATCH_SIZE)]
  answers = [
    found
    for batch in progress.track(batches, what="batches of questions")
    for found in answerer.answer([question.text for question in batch], num_answers=num_answers)
  ]
  lines = (
    json.dumps(_record(question.record, found), ensure_ascii=False) + "\n"
    for question, found in zip(entries, answers, strict=True)
  )
  atomic_files.write_text(output, "".join(lines), kind=_ANSWERS)
  truncated = sum(found.truncated for found in answers)
  longer = f"; {truncated} exceeded the model's input and were truncated" if truncated else ""
  print(f"{output}: answers to {len(answers):,} questions{longer}", flush=True)


def _record(entry: Mapping, found: QuestionAnswers) -> dict:
  """Returns the output line of a question: its input fields and its answers."""
  passages = zip(
    found.passage_ids, found.titles, found.scores, found.retrieval_probabilities, strict=True
  )
  names = ("passage_id", "title", "score", "retrieval_probability")
  return {
    **entry,
    "prediction": found.answers[0].text if found.answers else "",
    "answers": [dataclasses.asdict(answer) for answer in found.answers],
    "passages": [dict(zip(names, passage, strict=True)) for passage in passages],
    "truncated": found.truncated,
  }
