"""Answers questions or fills a [MASK], and shows the passages that the answer was read from."""

import dataclasses
import gzip
import json
from collections.abc import Iterable
from typing import Literal

from realm_jax import atomic_files, choices, progress
from realm_jax.data import questions as question_files
from realm_jax.evaluation import prediction_files
from realm_jax.evaluation.open_qa import Outcome, evaluate_questions
from realm_jax.inference.mask_filler import MaskFiller
from realm_jax.inference.question_answerer import QuestionAnswers
from realm_jax.labels.answer_matching import match_answers
from realm_jax.saved.answering_models import mask_filler, question_answerer
from realm_jax.saved.opening import Corpus, Sources, open_sources

_OF_PASSAGES = ("passage_id", "title", "text", "retrieval_probability", "answer_probability")
OutputFormat = Literal["jsonl", "dpr", "trec"]


def predict(
  *,
  checkpoints: str,
  passages: str,
  index: str,
  query: str | None = None,
  questions: str | None = None,
  output: str | None = None,
  step: int | None = None,
  generation: int | None = None,
  output_format: OutputFormat = "jsonl",
  num_answers: int = 1,
  num_passages: int = 100,
  answer_text: Literal["raw", "spaced"] = "raw",
  batch_size: int = 32,
  max_answer_length: int = 4,
) -> dict | None:
  """Answers one query and shows how, or a file of questions into another file.

  A pre-trained model fills the mask of a sentence: answers of one to `max_answer_length` wordpieces
  are tried, and the one with the highest p(y|x) wins. A fine-tuned model answers questions.

  Args:
    checkpoints: directory of the checkpoints of a pre-training or a fine-tuning.
    passages: directory of the knowledge corpus to answer from.
    index: directory of the index generations of that corpus.
    query: a sentence with one `[MASK]`, or a question.
    questions: JSON Lines with `question`, plain or gzip, for a fine-tuned model.
    output: file for the answers to `questions`.
    output_format: "jsonl", answers and the passages read, see docs/open_qa.md; or the passages
      found alone, as "dpr" (Dense Passage Retrieval's JSON) or "trec" (a run file).
    step: checkpoint; none: the newest.
    generation: index generation; none: the newest.
    num_answers: answers to a question at most.
    num_passages: passages found for a question, in the formats that hold them.
    answer_text: "raw" slices answers from the passage; "spaced" as the released ORQA.
    batch_size: questions answered at once.
    max_answer_length: wordpieces that fill a mask at most.

  Returns:
    For a sentence `query`, `answer`, `probability` and `passages`; for a question what a line of
    the file would hold; for a file nothing.

  Raises:
    FileNotFoundError: if an input is missing.
    ValueError: if the query has no `[MASK]`, or inputs do not fit each other or the model.
  """
  choices.check(OutputFormat, output_format=output_format)
  if (query is None) == (questions is None) or (questions is None) != (output is None):
    raise ValueError("give either a query, or questions and an output")
  opened = open_sources(
    Sources(
      checkpoints=checkpoints, passages=passages, index=index, step=step, generation=generation
    )
  )
  if opened.saved.description.span_reader is None:
    if query is None:
      raise ValueError(f"{opened.saved.path} has no span reader; train it with `realm finetune`")
    return _fill_mask(query, mask_filler(opened, max_answer_length=max_answer_length))
  answerer = question_answerer(
    opened, answer_text=answer_text, batch_size=1 if query is not None else batch_size
  )
  if query is not None:
    result = _record({"question": query}, *answerer.answer([query], num_answers=num_answers))
    print(_shown_answers(result), flush=True)
    return result
  asked = question_files.read_questions(questions, answers_known=False)
  if output_format != "jsonl":
    outcomes = evaluate_questions(
      answerer.retrieve, asked, retrieve_k=num_passages, batch_size=batch_size
    )
    _write_found(output, outcomes, output_format, corpus=opened.corpus)
    print(f"{output}: passages for {len(outcomes):,} questions", flush=True)
    return None
  texts = [question.text for question in asked]
  batches = (texts[i : i + batch_size] for i in range(0, len(texts), batch_size))
  answers = [
    found
    for batch in progress.track(batches, what="batches of questions")
    for found in answerer.answer(batch, num_answers=num_answers)
  ]
  lines = [
    json.dumps(_record(record, found), ensure_ascii=False)
    for record, found in zip(_records(questions), answers, strict=True)
  ]
  _write_lines(output, lines)
  truncated = sum(found.truncated for found in answers)
  longer = f"; {truncated} were longer than the model reads" if truncated else ""
  print(f"{output}: answers to {len(answers):,} questions{longer}", flush=True)
  return None


def _write_found(
  output: str, outcomes: list[Outcome], output_format: Literal["dpr", "trec"], *, corpus: Corpus
) -> None:
  if output_format == "trec":
    _write_lines(output, prediction_files.trec_run_lines(outcomes, tag="realm_jax"))
    return
  store = corpus.store
  matcher = match_answers(
    [outcome.question for outcome in outcomes],
    store=store,
    tokenizer=corpus.tokenizer,
    rule="words",
  )
  content = prediction_files.dpr_json(outcomes, title=store.title, text=store.text, matcher=matcher)
  atomic_files.write_text(output, content)


def _write_lines(output: str, lines: Iterable[str]) -> None:
  atomic_files.write_text(output, "".join(f"{line}\n" for line in lines))


def _records(path: str) -> list[dict]:
  opened = gzip.open if path.endswith(".gz") else open
  with opened(path, "rt", encoding="utf-8") as file:
    return [json.loads(line) for line in file if line.strip()]


def _record(asked: dict, found: QuestionAnswers) -> dict:
  """Returns the line of a question: what was asked, and what was found."""
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
