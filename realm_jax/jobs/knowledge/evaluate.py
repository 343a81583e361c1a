"""Measures how well a knowledge base finds: by words, by its encoder and by both."""

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase


def evaluate(path: str, questions: str) -> None:
  """Prints a table of figures with confidence intervals.

  Args:
    path: The folder of the knowledge base.
    questions: JSON Lines with `question` and `answer`, or a collection in BEIR's format: a folder
      with `queries.jsonl` and `qrels/test.tsv`.

  Raises:
    FileNotFoundError: If there is no knowledge base or no such file.
    ValueError: If the questions cannot be read, or grade no document that is there.
  """
  print(KnowledgeBase(path).evaluate(questions), flush=True)
