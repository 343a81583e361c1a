"""Makes a knowledge base of a folder of texts."""

import shlex
import time
from collections.abc import Sequence

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase


def create(
  path: str,
  texts: Sequence[str] = (),
  *,
  language: Sequence[str] = ("auto",),
  passage_words: int = 100,
  encoder: str | None = None,
  reader: str | None = None,
) -> None:
  """Writes a knowledge base, and prints what it has, what was skipped, and what to do next.

  Args:
    path: The folder to write.
    texts: Folders, files or glob patterns: text, Markdown, JSON Lines, CSV,
      TSV or Parquet.
    language: Languages of the documents as BCP 47 tags; "auto" detects them in a sample.
    passage_words: The most words of a passage, which is what a search finds.
    encoder: Directory of a checkpoint with its vocabulary or of a sentence encoder from Hugging
      Face, or "sentence-transformers:NAME_OR_DIRECTORY", to search by meaning as well; None
      searches by words alone.
    reader: Workdir of a fine-tuning, or a `BertForQuestionAnswering` (its directory, or OWNER/NAME
      on the hub), to answer questions; None only searches.

  Raises:
    ValueError: If the folder has something else, or two documents have one id.
  """
  started = time.monotonic()
  base = KnowledgeBase.create(
    path, language=language, passage_words=passage_words, encoder=encoder, reader=reader
  )
  if texts:
    print(base.add(texts), flush=True)
  question = next(iter(base.examples()), "a question")
  marked = ["--"] * question.startswith("--") + [question]
  print(
    f"{base} in {time.monotonic() - started:.1f} s\n"
    "next:\n"
    f"  realm kb search {shlex.quote(path)} {shlex.join(marked)}\n"
    f"  realm kb add {shlex.quote(path)} more_texts/\n"
    f"  realm kb serve {shlex.quote(path)}",
    flush=True,
  )
