"""Makes searches of a knowledge base better: chooses what ranks, or trains on questions."""

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase


def train(path: str, questions: str | None = None, *, minutes: float | None = None) -> None:
  """Prints what ranks from now on, and the figures that decided.

  Args:
    path: The folder of the knowledge base.
    questions: JSON Lines with `question` and `answer`; None chooses between words, the encoder and
      both by probes made from the documents.
    minutes: When to stop learning from questions, at the latest; 30 by default.

  Raises:
    FileNotFoundError: If there is no knowledge base or no such file.
    ValueError: If there is no encoder, or questions are too few.
  """
  print(KnowledgeBase(path).train(questions=questions, minutes=minutes), flush=True)
