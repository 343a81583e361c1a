"""Answers questions or fills a [MASK], and shows the passages that answers were read from."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Literal

from realm_jax import atomic_files, choices, progress
from realm_jax.data import questions as question_files
from realm_jax.datatypes import MASK
from realm_jax.evaluation import prediction_files
from realm_jax.evaluation.document_ranking import passage_run, run_text
from realm_jax.evaluation.open_qa import Outcome, evaluate_questions
from realm_jax.inference.mask_filler import MaskFiller
from realm_jax.inference.question_answerer import AnswerText, QuestionAnswers
from realm_jax.labels.answer_matching import match_answers
from realm_jax.saved.answering_models import mask_filler, question_answerer
from realm_jax.saved.opening import Corpus, Sources, open_sources

_OF_PASSAGES = ("passage_id", "title", "text", "retrieval_probability", "answer_probability")
OutputFormat = Literal["jsonl", "dpr", "trec"]


def predict(
  *,
  sources: Sources,
  query: str | None = None,
  questions: str | None = None,
  output: str | None = None,
  output_format: OutputFormat = "jsonl",
  num_answers: int = 1,
  num_passages: int | None = None,
  answer_text: AnswerText = "raw",
  batch_size: int = 32,
  max_answer_length: int = 4,
) -> dict | None:
  """Answers one query and shows the passages, or writes answers to a file of questions.

  A pre-trained model fills the mask of a sentence, with the highest p(y|x) among answers of one to
  `max_answer_length` wordpieces. A fine-tuned model answers questions.

  Args:
    sources: The model, the corpus and its index.
    query: A sentence with one `[MASK]`, or a question.
    questions: JSON Lines with `question`, plain or gzip, for a fine-tuned model.
    output: File for the answers to `questions`.
    output_format: "jsonl" writes answers and the passages read, see docs/open_qa.md; "dpr" (Dense
      Passage Retrieval's JSON) and "trec" (a run file) write only the passages found.
    num_answers: Maximum number of answers per question.
    num_passages: Number of passages per question, for "dpr" and "trec"; None uses 100.
    answer_text: "raw" slices answers from the passage; "spaced" separates words from punctuation,
      as the released ORQA does.
    batch_size: Questions per batch.
    max_answer_length: Maximum wordpieces that fill a mask.

  Returns:
    For a sentence, `answer`, `probability` and `passages`; for a question, the content of an output
    line; for a file, None.

  Raises:
    FileNotFoundError: If an input is missing.
    ValueError: If the query has no `[MASK]`, the inputs do not match each other or the model, or a
      setting would do nothing.
  """
  choices.check(OutputFormat, output_format=output_format)
  if query is not None and questions is None and output is None:
    _check_used(
      "--query",
      output_format=output_format != "jsonl",
      num_passages=num_passages is not None,
      way_out="give --questions and --output",
    )
    opened = open_sources(sources)
    if opened.saved.description.span_reader is None:
      _check_used(
        MASK, num_answers=num_answers != 1, way_out=f"use `realm ask --answers={num_answers}`"
      )
      return _fill_mask(query, mask_filler(opened, max_answer_length=max_answer_length))
    answerer = question_answerer(opened, answer_text=answer_text, batch_size=1)
    result = _record({"question": query}, *answerer.answer([query], num_answers=num_answers))
    print(_shown_answers(result), flush=True)
    return result
  if query is not None or questions is None or output is None:
    raise ValueError("give either --query, or --questions and --output")
  of_passages = output_format != "jsonl"
  _check_used(
    f"--output_format={output_format}",
    num_answers=of_passages and num_answers != 1,
    num_passages=not of_passages and num_passages is not None,
    way_out=f"give --output_format={'jsonl' if of_passages else 'dpr'}",
  )
  opened = open_sources(sources)
  answerer = question_answerer(opened, answer_text=answer_text, batch_size=batch_size)
  asked = question_files.read_questions(questions, answers_known=False)
  if of_passages:
    retrieve_k = 100 if num_passages is None else num_passages
    outcomes = evaluate_questions(
      answerer.retrieve, asked, retrieve_k=retrieve_k, batch_size=batch_size
    )
    _write_found(output, outcomes, output_format, corpus=opened.corpus)
    print(f"{output}: passages for {len(outcomes):,} questions", flush=True)
    return None
  batches = [asked[i : i + batch_size] for i in range(0, len(asked), batch_size)]
  answers = [
    found
    for batch in progress.track(batches, what="batches of questions")
    for found in answerer.answer([question.text for question in batch], num_answers=num_answers)
  ]
  lines = (
    json.dumps(_record(question.record, found), ensure_ascii=False) + "\n"
    for question, found in zip(asked, answers, strict=True)
  )
  atomic_files.write_text(output, "".join(lines))
  truncated = sum(found.truncated for found in answers)
  longer = f"; {truncated} exceeded the model's input and were truncated" if truncated else ""
  print(f"{output}: answers to {len(answers):,} questions{longer}", flush=True)
  return None


def _check_used(asked: str, *, way_out: str, **given: bool) -> None:
  """Checks that no flag is given that would do nothing for what is asked."""
  if unused := [f"--{name}" for name, value in given.items() if value]:
    raise ValueError(f"{', '.join(unused)} would do nothing for {asked}; omit it, or {way_out}")


def _write_found(
  output: str, outcomes: list[Outcome], output_format: Literal["dpr", "trec"], *, corpus: Corpus
) -> None:
  if output_format == "trec":
    atomic_files.write_text(output, run_text(passage_run(outcomes), tag="realm_jax"))
    return
  store = corpus.store
  matcher = match_answers(
    [outcome.question for outcome in outcomes],
    store=store,
    tokenizer=corpus.tokenizer,
    rule="words",
  )
  content = prediction_files.dpr_json(outcomes, store=store, matcher=matcher)
  atomic_files.write_text(output, content)


def _record(asked: Mapping, found: QuestionAnswers) -> dict:
  """Returns the output line of a question: its input fields and its answers."""
  passages = zip(
    found.passage_ids, found.titles, found.scores, found.retrieval_probabilities, strict=True
  )
  return {
    **asked,
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


def _shown_answers(result: dict) -> str:
  lines = [result["question"], "  p(y,z|x)   p(z|x)  p(y|z,x)  answer"]
  for answer in result["answers"]:
    lines.append(
      f"  {answer['probability']:8.3f}  {answer['retrieval_probability']:7.3f}"
      f"  {answer['reader_probability']:8.3f}  {answer['text']}  ({answer['title']},"
      f" characters {answer['start_char']} to {answer['limit_char']})"
    )
  return "\n".join(lines)


def _fill_mask(query: str, filler: MaskFiller) -> dict:
  (explanation,) = filler.explain([query], answers=1)
  (answer,) = explanation.answers
  result = {
    "query": query,
    "answer": answer.text,
    "probability": answer.probability,
    "passages": [
      {name: getattr(passage, name) for name in _OF_PASSAGES} for passage in explanation.passages
    ],
  }
  print(_shown(result), flush=True)
  return result


def _shown(result: dict) -> str:
  lines = [
    result["query"],
    f"  {result['answer']}   p(y|x) = {result['probability']:.3f}",
    "  p(z|x)  p(y|z,x)  passage",
  ]
  for passage in result["passages"]:
    text = (
      f"{passage['title']}: {passage['text']}" if passage["passage_id"] >= 0 else "(null passage)"
    )
    lines.append(
      f"  {passage['retrieval_probability']:6.3f}  {passage['answer_probability']:8.3f}  {text}"
    )
  return "\n".join(lines)
