"""Fills a [MASK] or answers a question, and shows the contribution of each passage read."""

import dataclasses

from realm_jax.inference.explanation import AnswerOption, Evidence, Explanation
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.saved.answering_models import open_answerer
from realm_jax.saved.opening import Sources
from realm_jax.text.terminal import column, isolated


def ask(
  query: str,
  question: str | None = None,
  *,
  sources: Sources = Sources(),
  answers: int = 3,
  target: str | None = None,
  max_answer_length: int = 4,
) -> dict:
  """Prints the most likely answers, and the contributions of the passages to the first.

  A pre-trained model fills the mask of a sentence, trying answers of one to `max_answer_length`
  wordpieces. A fine-tuned model answers a question with a span of a passage. The most probable
  answer wins. A knowledge base answers with its reader: `realm ask KNOWLEDGE_BASE QUESTION`.

  Args:
    query: A sentence with one `[MASK]`, or a question; before a question, a knowledge base.
    question: What to ask the knowledge base.
    sources: The model, the corpus and its index.
    answers: Number of answers to show.
    target: An answer to explain instead of the most likely one.
    max_answer_length: Maximum wordpieces that fill a mask.

  Returns:
    The explanation as plain values, and `answer`, the most likely one.

  Raises:
    FileNotFoundError: If an input is missing.
    ValueError: If the model cannot take the query, or the inputs do not match.
  """
  if question is not None:
    if sources != Sources() or target is not None:
      raise ValueError(f"{query} is a knowledge base; give it and the question alone, or a model")
    answer = KnowledgeBase(query).answer(question)
    print(answer, flush=True)
    return {"query": question, "answer": answer.text, "probability": answer.probability}
  if answers < 1:
    raise ValueError(f"answers={answers}; show at least 1")
  model = open_answerer(sources, max_answer_length=max_answer_length)
  (explanation,) = model.explain([query], answers=answers, target=target)
  print(shown(explanation), flush=True)
  return {**dataclasses.asdict(explanation), "answer": explanation.answers[0].text}


def shown(explanation: Explanation) -> str:
  """Returns an explanation as lines of text."""
  best, *others = explanation.answers
  lines = [explanation.query, f"  {isolated(best.text)}   {_probability(best)}"]
  if others:
    options = (f"{isolated(option.text)} {option.probability:.3f}" for option in others)
    lines.append(f"  or: {', '.join(options)}")
  lines.append("  p(z|x)  p(y|z,x)  utility  without it            passage")
  return "\n".join([*lines, *map(_line, explanation.passages)])


def _probability(best: AnswerOption) -> str:
  without = best.probability_without_retrieval
  if without is None:
    return f"p(y,z|x) = {best.probability:.3f}"
  return f"p(y|x) = {best.probability:.3f}, without retrieval {without:.2g}"


def _line(passage: Evidence) -> str:
  without = f"{passage.probability_without:.3f} {passage.answer_without or '(no answer)'}"
  utility = "" if passage.utility is None else f"{passage.utility:+.1f}"
  text = (
    isolated(f"{passage.title}: {passage.text}") if passage.passage_id >= 0 else "(null passage)"
  )
  return (
    f"  {passage.retrieval_probability:6.3f}  {passage.answer_probability:8.3f}  "
    f"{utility:>7}  {column(without, 20)}  {text}"
  )
