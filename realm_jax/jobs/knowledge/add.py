"""Adds texts to a knowledge base."""

from collections.abc import Sequence

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase


def add(
  path: str, texts: Sequence[str], *, update: bool = False, delete_missing: bool = False
) -> None:
  """Adds documents; those that are there already with the same content are skipped.

  Args:
    path: The folder of the knowledge base.
    texts: Folders, files or glob patterns: text, Markdown, JSON Lines or Parquet.
    update: Whether to replace the documents that are there with another content.
    delete_missing: Whether to update, and to delete all documents that are not in these texts.

  Raises:
    FileNotFoundError: If there is no knowledge base, or no text.
    ValueError: If a document is there with another content.
  """
  base = KnowledgeBase(path)
  if update or delete_missing:
    changes = base.update(texts, delete_missing=delete_missing)
  else:
    changes = base.add(texts)
  print(f"{changes}\n{base}", flush=True)
