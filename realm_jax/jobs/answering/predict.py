"""Answers the questions of a file, and writes the passages that answers were read from."""

import dataclasses
import json
from collections.abc import Mapping

from realm_jax.data import questions as question_files
from realm_jax.foundations import atomic_files, progress
from realm_jax.foundations.output_kinds import FileKind
from realm_jax.inference.question_answerer import AnswerText, QuestionAnswers
from realm_jax.saved.answering_models import question_answerer
from realm_jax.saved.opening import Sources, open_sources

_ANSWERS = FileKind(name="a file of answers", start=r'\{.*"prediction": ')


def predict(
  *,
  sources: Sources,
  questions: str,
  output: str,
  num_answers: int = 1,
  answer_text: AnswerText = "raw",
  batch_size: int = 32,
) -> None:
  """Writes a fine-tuned model's answers to a file of questions.

  Args:
    sources: The model, the corpus and its index.
    questions: JSON Lines with `question`, plain or gzip.
    output: File for the answers and the passages read, JSON Lines (docs/open_qa.md).
    num_answers: Maximum number of answers per question.
    answer_text: "raw" slices answers from the passage; "spaced" separates words from punctuation,
      as the released ORQA does.
    batch_size: Questions per batch.

  Raises:
    FileNotFoundError: If an input is missing.
    ValueError: If the inputs do not match each other or the model.
  """
  _ANSWERS.check(output)
  opened = open_sources(sources)
  answerer = question_answerer(opened, answer_text=answer_text, batch_size=batch_size)
  entries = question_files.read_questions(questions, answers_known=False)
  batches = [entries[i : i + batch_size] for i in range(0, len(entries), batch_size)]
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
  return {
    **entry,
    "prediction": found.answers[0].text if found.answers else "",
    "answers": [dataclasses.asdict(answer) for answer in found.answers],
    "passages": [
      {
        "passage_id": passage_id,
        "title": title,
        "score": score,
        "retrieval_probability": probability,
      }
      for passage_id, title, score, probability in passages
    ],
    "truncated": found.truncated,
  }
