"""Adds texts to a knowledge base."""

from collections.abc import Sequence

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase


def add(
  path: str,
  texts: Sequence[str] = (),
  *,
  update: bool = False,
  delete_missing: bool = False,
  reader: str | None = None,
) -> None:
  """Adds documents; those that are there already with the same content are skipped.

  Args:
    path: The folder of the knowledge base.
    texts: Folders, files or glob patterns: text, Markdown, JSON Lines, CSV,
      TSV or Parquet.
    update: Whether to replace the documents that are there with another content.
    delete_missing: Whether to update, and to delete all documents that are not in these texts.
    reader: Workdir of a fine-tuning, or a `BertForQuestionAnswering` (its directory, or OWNER/NAME
      on the hub), which answers questions from now on.

  Raises:
    FileNotFoundError: If there is no knowledge base, no text or no reader.
    ValueError: If a document is there with another content, or there is nothing to add.
  """
  base = KnowledgeBase(path)
  if not texts and reader is None:
    raise ValueError("nothing to add; name texts, or a reader with --reader")
  if reader is not None:
    base.add_reader(reader)
  if texts:
    changing = update or delete_missing
    print(base.update(texts, delete_missing=delete_missing) if changing else base.add(texts))
  print(base, flush=True)
