"""Answers the questions of a file, and writes the passages that answers were read from."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Literal

from realm_jax.data import questions as question_files
from realm_jax.evaluation import prediction_files
from realm_jax.evaluation.document_ranking import passage_run, run_text
from realm_jax.evaluation.open_qa import Outcome, evaluate_questions
from realm_jax.foundations import atomic_files, choices, progress
from realm_jax.foundations.output_kinds import FileKind
from realm_jax.inference.question_answerer import AnswerText, QuestionAnswers
from realm_jax.labels.answer_matching import match_answers
from realm_jax.saved.answering_models import question_answerer
from realm_jax.saved.opening import Corpus, Sources, open_sources

OutputFormat = Literal["jsonl", "dpr", "trec"]
_KINDS: Mapping[OutputFormat, FileKind] = {
  "jsonl": FileKind(name="a file of answers", start=r'\{.*"prediction": '),
  "dpr": FileKind(name="a file of passages found", start=r'(?s)\[\s*\{\s*"question": .*"ctxs": '),
  "trec": FileKind(name="a run file of realm_jax", start=r"\S+ Q0 .* realm_jax\n"),
}


def predict(
  *,
  sources: Sources,
  questions: str,
  output: str,
  output_format: OutputFormat = "jsonl",
  num_answers: int = 1,
  num_passages: int | None = None,
  answer_text: AnswerText = "raw",
  batch_size: int = 32,
) -> None:
  """Writes a fine-tuned model's answers to a file of questions.

  Args:
    sources: The model, the corpus and its index.
    questions: JSON Lines with `question`, plain or gzip.
    output: File for the answers.
    output_format: "jsonl" writes answers and the passages read, see docs/open_qa.md; "dpr" (Dense
      Passage Retrieval's JSON) and "trec" (a run file) write only the passages found.
    num_answers: Maximum number of answers per question.
    num_passages: Number of passages per question, for "dpr" and "trec"; None uses 100.
    answer_text: "raw" slices answers from the passage; "spaced" separates words from punctuation,
      as the released ORQA does.
    batch_size: Questions per batch.

  Raises:
    FileNotFoundError: If an input is missing.
    ValueError: If the inputs do not match each other or the model, or a setting would do nothing.
  """
  choices.check(OutputFormat, output_format=output_format)
  _KINDS[output_format].check(output)
  of_passages = output_format != "jsonl"
  changed = {"num_answers": num_answers != 1, "num_passages": num_passages is not None}
  unused = "num_answers" if of_passages else "num_passages"
  if changed[unused]:
    raise ValueError(f"--{unused} would do nothing for --output_format={output_format}; omit it")
  opened = open_sources(sources)
  answerer = question_answerer(opened, answer_text=answer_text, batch_size=batch_size)
  entries = question_files.read_questions(questions, answers_known=False)
  if of_passages:
    retrieve_k = 100 if num_passages is None else num_passages
    outcomes = evaluate_questions(
      answerer.retrieve, entries, retrieve_k=retrieve_k, batch_size=batch_size
    )
    _write_found(output, outcomes, output_format, corpus=opened.corpus)
    print(f"{output}: passages for {len(outcomes):,} questions", flush=True)
    return
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
  atomic_files.write_text(output, "".join(lines), kind=_KINDS["jsonl"])
  truncated = sum(found.truncated for found in answers)
  longer = f"; {truncated} exceeded the model's input and were truncated" if truncated else ""
  print(f"{output}: answers to {len(answers):,} questions{longer}", flush=True)


def _write_found(
  output: str, outcomes: list[Outcome], output_format: Literal["dpr", "trec"], *, corpus: Corpus
) -> None:
  if output_format == "trec":
    content = run_text(passage_run(outcomes), tag="realm_jax")
  else:
    matcher = match_answers(
      [outcome.question for outcome in outcomes],
      store=corpus.store,
      tokenizer=corpus.tokenizer,
      rule="words",
    )
    content = prediction_files.dpr_json(outcomes, store=corpus.store, matcher=matcher)
  atomic_files.write_text(output, content, kind=_KINDS[output_format])


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
