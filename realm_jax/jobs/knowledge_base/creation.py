"""The verb of `realm kb` that makes a knowledge base."""

import functools
import shlex
import time
from collections.abc import Sequence

from realm_jax.foundations import choices
from realm_jax.knowledge_base.encoders import text_encoders
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.text import terminal


def create(
  path: str,
  texts: Sequence[str] = (),
  *,
  language: Sequence[str] = ("auto",),
  passage_words: choices.Count = 100,
  encoder: str | None = None,
  reader: str | None = None,
) -> None:
  """Makes a knowledge base of a folder of texts, and prints what it has and what to do next.

  Example:
    realm kb create kb texts/
    realm kb create kb texts/ notes.jsonl --encoder=all-MiniLM-L6-v2

  Args:
    path: The folder to write.
    texts: Folders, files or glob patterns: text, Markdown, PDF, office,
      HTML, mail, JSON Lines, CSV, TSV or Parquet.
    language: Languages of the documents as BCP 47 tags; "auto" detects them.
    passage_words: The most words of a passage, which is what a search finds.
    encoder: Directory of a checkpoint with its vocabulary, or of a BERT-based sentence encoder from
      Hugging Face (or its OWNER/NAME on the hub), or "sentence-transformers:NAME_OR_DIRECTORY", to
      search by meaning as well; None searches by words alone.
    reader: Workdir of a fine-tuning, or a `BertForQuestionAnswering` (its directory, or OWNER/NAME
      on the hub), to answer questions; None only searches.
  """
  started = time.monotonic()
  base = KnowledgeBase.create(
    path,
    texts,
    language=language,
    passage_words=passage_words,
    encoder=encoder,
    reader=reader,
    show=functools.partial(print, flush=True),
  )
  question = terminal.line(next(iter(base.examples()), "a question"))
  marked = ["--"] * question.startswith("--") + [question]
  named = encoder if encoder and encoder.startswith(text_encoders.LIBRARY) else None
  opening = shlex.join([path, *[f"--encoder={named}"] * bool(named)])
  print(
    f"{base} in {time.monotonic() - started:.1f} s\n"
    "next:\n"
    f"  realm kb search {opening} {shlex.join(marked)}\n"
    f"  realm kb add {opening} more_texts/\n"
    f"  realm kb serve {opening}",
    flush=True,
  )
