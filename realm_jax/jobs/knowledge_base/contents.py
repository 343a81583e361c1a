"""The verbs of `realm kb` that change what a knowledge base has, and copy it."""

from collections.abc import Sequence

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase, Opening


def add(
  opening: Opening, texts: Sequence[str] = (), *, update: bool = False, reader: str | None = None
) -> None:
  """Adds texts to a knowledge base; documents that are there already are skipped.

  Example:
    realm kb add kb notes.jsonl
    realm kb add kb texts/ --update

  Args:
    opening: The knowledge base.
    texts: Folders, files or glob patterns: text, Markdown, PDF, office,
      HTML, mail, JSON Lines, CSV, TSV or Parquet.
    update: Whether to replace the documents that are there with another content.
    reader: Workdir of a fine-tuning, or a `BertForQuestionAnswering` (its directory, or OWNER/NAME
      on the hub), which answers questions from now on.
  """
  base = opening.open()
  if not texts and reader is None:
    raise ValueError("nothing to add; name texts, or a reader with --reader")
  if reader is not None:
    base.add_reader(reader)
  if texts:
    print(base.update(texts) if update else base.add(texts))
  print(base, flush=True)


def sync(opening: Opening, texts: Sequence[str], *, watch: bool = False) -> None:
  """Makes a knowledge base follow folders: adds what is new there, replaces, deletes what is gone.

  Files that have not changed are not read. Documents from elsewhere stay, and so do those of files
  that cannot be read.

  Example:
    realm kb sync kb texts/
    realm kb sync kb texts/ --watch

  Args:
    opening: The knowledge base.
    texts: Folders, files or glob patterns: text, Markdown, PDF, office,
      HTML, mail, JSON Lines, CSV, TSV or Parquet.
    watch: Whether to go on, with a line for each change, until it is interrupted or killed.
  """
  base = opening.open()
  if watch:
    from realm_jax.knowledge_base import following  # late, because it needs an extra

    return following.follow(base, texts)
  print(f"{base.sync(texts)}\n{base}", flush=True)


def delete(path: str, ids: Sequence[str]) -> None:
  """Deletes documents from a knowledge base by their ids, which `search` shows.

  Example:
    realm kb delete kb note-1 texts/old.md

  Args:
    path: The folder of the knowledge base.
    ids: Ids of documents.
  """
  base = KnowledgeBase(path)
  print(f"{base.delete(ids)}\n{base}", flush=True)


def compact(path: str, *, purge: bool = False) -> None:
  """Merges what a knowledge base has, and removes deleted documents from its files.

  Args:
    path: The folder of the knowledge base.
    purge: Whether to leave no trace of deleted documents: no id in the history, no embedding of a
      change that was killed, and nothing of an earlier commit at an address, once it is published
      there again.
  """
  base = KnowledgeBase(path)
  base.compact(purge=purge)
  print(
    f"{base}\ndeleted documents are gone from the folder; programs that have it open keep them "
    "until their next search, addresses until `realm kb publish`, backups for ever",
    flush=True,
  )


def publish(path: str, address: str) -> None:
  """Publishes a knowledge base in an object store, for readers on other machines.

  Example:
    realm kb publish kb gs://bucket/kb

  Args:
    path: The folder of the knowledge base.
    address: Where readers open it, such as gs://bucket/kb.
  """
  base = KnowledgeBase(path)
  print(f"{base.publish(address)} files copied\n{base}", flush=True)
