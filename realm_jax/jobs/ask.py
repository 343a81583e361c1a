"""Fills the [MASK] of a sentence, and shows the passages read and what each did to the answer."""

import dataclasses

from realm_jax.inference.explanation import Evidence, Explanation
from realm_jax.jobs.mask_filling import open_mask_filler


def ask(
  query: str,
  *,
  checkpoints: str,
  passages: str,
  index: str,
  step: int | None = None,
  generation: int | None = None,
  answers: int = 3,
  target: str | None = None,
  max_answer_length: int = 4,
) -> dict:
  """Prints the likeliest answers, and the passages with their part in the first.

  Answers of one to `max_answer_length` wordpieces are tried; the one with the highest p(y|x) wins.

  Args:
    query: a sentence with one `[MASK]`.
    checkpoints: directory of the checkpoints of a pre-training.
    passages: directory of the knowledge corpus to answer from.
    index: directory of the index generations of that corpus.
    step: checkpoint; none: the newest.
    generation: index generation; none: the newest.
    answers: how many are shown.
    target: an answer to be explained instead of the likeliest one.
    max_answer_length: wordpieces of an answer at most.

  Returns:
    The explanation as plain values, and `answer`, the likeliest.

  Raises:
    FileNotFoundError: if an input is missing.
    ValueError: if the query has no `[MASK]`, or inputs do not fit each other.
  """
  filler = open_mask_filler(
    checkpoints=checkpoints,
    passages=passages,
    index=index,
    step=step,
    generation=generation,
    max_answer_length=max_answer_length,
  )
  (explanation,) = filler.fill_mask([query], answers=answers, target=target)
  print(shown(explanation), flush=True)
  return {**dataclasses.asdict(explanation), "answer": explanation.answers[0].text}


def shown(explanation: Explanation) -> str:
  """Returns an explanation as lines of text."""
  best, *others = explanation.answers
  lines = [
    explanation.query,
    f"  {best.text}   p(y|x) = {best.probability:.3f}, without retrieval "
    f"{best.probability_without_retrieval:.2g}",
  ]
  if others:
    options = (f"{option.text} {option.probability:.3f}" for option in others)
    lines.append(f"  or: {', '.join(options)}")
  lines.append("  p(z|x)  p(y|z,x)  utility  without it            passage")
  return "\n".join([*lines, *map(_line, explanation.passages)])


def _line(passage: Evidence) -> str:
  without = f"{passage.probability_without:.3f} {passage.answer_without}"
  text = f"{passage.title}: {passage.text}" if passage.passage_id >= 0 else "(null passage)"
  return (
    f"  {passage.retrieval_probability:6.3f}  {passage.answer_probability:8.3f}  "
    f"{passage.utility:+7.1f}  {without:<20.20}  {text}"
  )
