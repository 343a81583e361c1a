"""Deletes documents from a knowledge base."""

from collections.abc import Sequence

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase


def delete(path: str, ids: Sequence[str]) -> None:
  """Deletes documents by their ids, which `search` shows.

  Args:
    path: The folder of the knowledge base.
    ids: Ids of documents.

  Raises:
    FileNotFoundError: If there is no knowledge base.
    ValueError: If there is no document with one of the ids; nothing is deleted.
  """
  base = KnowledgeBase(path)
  print(f"{base.delete(ids)}\n{base}", flush=True)
