"""Fills the [MASK] of a sentence, and shows the passages it was read from."""

import dataclasses

from realm_jax.data import questions
from realm_jax.jobs import saved_models
from realm_jax.jobs.retrieval_setup import open_predictor


def predict(
  *,
  query: str,
  checkpoints: str,
  passages: str,
  index: str,
  step: int | None = None,
  generation: int | None = None,
  max_answer_length: int = 4,
) -> dict:
  """Prints the likeliest answer with its probability, and the passages with theirs.

  Answers of one to `max_answer_length` wordpieces are tried; the one with the highest p(y|x) wins.

  Args:
    query: a sentence with one `[MASK]`.
    checkpoints: directory of the checkpoints of a pre-training.
    passages: directory of the knowledge corpus to answer from.
    index: directory of the index generations of that corpus.
    step: checkpoint; none: the newest.
    generation: index generation; none: the newest.
    max_answer_length: wordpieces of an answer at most.

  Returns:
    `query`, `answer`, `probability` and `passages`.

  Raises:
    FileNotFoundError: if an input is missing.
    ValueError: if the query has no `[MASK]`, or inputs do not fit each other.
  """
  saved = saved_models.load(checkpoints, step=step)
  predictor, _, tokenizer = open_predictor(
    saved, passages=passages, index=index, generation=generation
  )
  answers = [
    predictor.answer(
      questions.masked_text_query(
        query,
        num_masks=num_masks,
        tokenizer=tokenizer,
        query_length=saved.description.query_length,
        max_masks=saved.description.max_masks,
      )
    )[0]
    for num_masks in range(1, min(max_answer_length, saved.description.max_masks) + 1)
  ]
  best = max(answers, key=lambda answer: answer.probability)
  result = {
    "query": query,
    "answer": tokenizer.decode(best.ids),
    "probability": best.probability,
    "passages": [dataclasses.asdict(passage) for passage in best.passages],
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
