"""Answers a question from a knowledge base, with its reader or a language model."""

from realm_jax.knowledge_base.chat_server import GeneratorSettings
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase


def ask(
  path: str,
  question: str,
  *,
  generator: GeneratorSettings = GeneratorSettings(),
  min_answerable: float | None = None,
) -> None:
  """Prints the answer, and the passages that it stands in or cites.

  Args:
    path: The folder of the knowledge base.
    question: What to ask.
    generator: A language model, which answers instead of the reader.
    min_answerable: The least probability that an answer is among the passages, below which none is
      given; `realm kb train` learns it from questions.

  Raises:
    FileNotFoundError: If there is no knowledge base.
    ValueError: If it has no reader, or the language model gives no answer.
  """
  base, generate = KnowledgeBase(path), generator.open()
  print(base.answer(question, generate=generate, min_answerable=min_answerable), flush=True)
