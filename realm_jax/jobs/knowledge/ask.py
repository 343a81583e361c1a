"""Answers a question from a knowledge base, with its reader."""

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase


def ask(path: str, question: str) -> None:
  """Prints the answer, and the passage that it stands in.

  Args:
    path: The folder of the knowledge base.
    question: What to ask.

  Raises:
    FileNotFoundError: If there is no knowledge base.
    ValueError: If it has no reader.
  """
  print(KnowledgeBase(path).answer(question), flush=True)
