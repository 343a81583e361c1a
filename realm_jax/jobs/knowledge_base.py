"""The verbs of `realm kb`: each is a function, whose docstring is its help.

They raise FileNotFoundError if the knowledge base or another input is missing, and ValueError if
an argument is wrong, with the reason; nothing is changed then.
"""

import dataclasses
import functools
import os
import shlex
import sys
import time
from collections.abc import Sequence

from realm_jax.foundations import choices, extras
from realm_jax.knowledge_base.encoders import text_encoders
from realm_jax.knowledge_base.generation import GeneratorSettings
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.store.query import Query
from realm_jax.text import terminal
from realm_jax.web import listening, serving
from realm_jax.web.listening import LimitSettings


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


def add(
  path: str,
  texts: Sequence[str] = (),
  *,
  update: bool = False,
  encoder: str | None = None,
  reader: str | None = None,
) -> None:
  """Adds texts to a knowledge base; documents that are there already are skipped.

  Example:
    realm kb add kb notes.jsonl
    realm kb add kb texts/ --update

  Args:
    path: The folder of the knowledge base.
    texts: Folders, files or glob patterns: text, Markdown, PDF, office,
      HTML, mail, JSON Lines, CSV, TSV or Parquet.
    update: Whether to replace the documents that are there with another content.
    encoder: "sentence-transformers:NAME_OR_DIRECTORY", if it was made with that; a model that only
      the folder names is not loaded.
    reader: Workdir of a fine-tuning, or a `BertForQuestionAnswering` (its directory, or OWNER/NAME
      on the hub), which answers questions from now on.
  """
  base = KnowledgeBase(path, encoder=encoder)
  if not texts and reader is None:
    raise ValueError("nothing to add; name texts, or a reader with --reader")
  if reader is not None:
    base.add_reader(reader)
  if texts:
    print(base.update(texts) if update else base.add(texts))
  print(base, flush=True)


def sync(
  path: str, texts: Sequence[str], *, watch: bool = False, encoder: str | None = None
) -> None:
  """Makes a knowledge base follow folders: adds what is new there, replaces, deletes what is gone.

  Files that have not changed are not read. Documents from elsewhere stay, and so do those of files
  that cannot be read.

  Example:
    realm kb sync kb texts/
    realm kb sync kb texts/ --watch

  Args:
    path: The folder of the knowledge base.
    texts: Folders, files or glob patterns: text, Markdown, PDF, office,
      HTML, mail, JSON Lines, CSV, TSV or Parquet.
    watch: Whether to go on, with a line for each change, until it is interrupted or killed.
    encoder: "sentence-transformers:NAME_OR_DIRECTORY", if it was made with that; a model that only
      the folder names is not loaded.
  """
  base = KnowledgeBase(path, encoder=encoder)
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


def search(path: str, query: Query, *, encoder: str | None = None) -> None:
  """Searches a knowledge base, and prints the best passages.

  Example:
    realm kb search kb "what causes the flutter of a wing" --k=3
    realm kb search kb flutter --where='{"year": {"gte": 1950}}'

  Args:
    path: The folder of the knowledge base.
    query: What to search for.
    encoder: "sentence-transformers:NAME_OR_DIRECTORY", if it was made with that; a model that only
      the folder names is not loaded.
  """
  hits = KnowledgeBase(path, encoder=encoder).search(**vars(query))
  marks = sys.stdout.isatty() and "NO_COLOR" not in os.environ
  print(hits.shown(lambda word: f"\x1b[1m{word}\x1b[0m" if marks else word), flush=True)


def ask(
  path: str,
  query: Query,
  *,
  encoder: str | None = None,
  generator: GeneratorSettings = GeneratorSettings(),
) -> None:
  """Answers a question from a knowledge base, with its reader or a language model.

  Example:
    realm kb ask kb "what causes flutter" --generator=http://127.0.0.1:8000/v1
    realm kb ask kb "and what prevents it" --after="what causes flutter"

  Args:
    path: The folder of the knowledge base.
    query: What to ask.
    encoder: "sentence-transformers:NAME_OR_DIRECTORY", if it was made with that; a model that only
      the folder names is not loaded.
    generator: A language model, which answers instead of the reader.
  """
  base, generate = KnowledgeBase(path, encoder=encoder), generator.open()
  print(base.answer(**{**vars(query), "generate": generate}), flush=True)


def train(
  path: str,
  questions: str | None = None,
  *,
  encoder: str | None = None,
  minutes: choices.Positive | None = None,
) -> None:
  """Makes searches of a knowledge base better: chooses what ranks, or trains on questions.

  Example:
    realm kb train kb questions.jsonl

  Args:
    path: The folder of the knowledge base.
    questions: JSON Lines with `question` and `answer`, at least 100; None chooses between words,
      the encoder and both by probes made from the documents.
    encoder: "sentence-transformers:NAME_OR_DIRECTORY", if it was made with that; a model that only
      the folder names is not loaded.
    minutes: When to stop learning from questions, at the latest; 30 by default.
  """
  print(
    KnowledgeBase(path, encoder=encoder).train(questions=questions, minutes=minutes), flush=True
  )


def evaluate(path: str, questions: str, *, encoder: str | None = None) -> None:
  """Measures how well a knowledge base finds: by words, by its encoder and by both.

  Example:
    realm kb evaluate kb questions.jsonl

  Args:
    path: The folder of the knowledge base.
    questions: JSON Lines with `question` and `answer`, or a collection in BEIR's format: a folder
      with `queries.jsonl` and `qrels/test.tsv`.
    encoder: "sentence-transformers:NAME_OR_DIRECTORY", if it was made with that; a model that only
      the folder names is not loaded.
  """
  print(KnowledgeBase(path, encoder=encoder).evaluate(questions), flush=True)


def serve(
  path: str,
  *,
  host: str = "127.0.0.1",
  port: choices.Port = 8080,
  edit_token: str | None = None,
  encoder: str | None = None,
  limits: LimitSettings = LimitSettings(),
  generator: GeneratorSettings = GeneratorSettings(),
) -> None:
  """Serves a knowledge base: pages and an HTTP API.

  Example:
    realm kb serve kb

  Args:
    path: The folder of the knowledge base.
    host: Address to listen on; 0.0.0.0 is every address of this machine.
    port: Port to listen on; 0 chooses a free one, which the printed address shows.
    edit_token: Lets those who know it change the documents; None takes the environment's
      REALM_EDIT_TOKEN, and without that nobody may. Other users of the machine can read a command
      line.
    encoder: "sentence-transformers:NAME_OR_DIRECTORY", if it was made with that; a model that only
      the folder names is not loaded.
    limits: Which requests are accepted; on a loopback address, `hosts` are local names by default.
    generator: A language model, which answers instead of the reader.
  """
  serving.serve(
    KnowledgeBase(path, encoder=encoder),
    host=host,
    port=port,
    edit_token=edit_token,
    limits=limits,
    generate=generator.open(),
  )


def mcp(
  path: str,
  *,
  write: bool = False,
  port: choices.Port | None = None,
  encoder: str | None = None,
  generator: GeneratorSettings = GeneratorSettings(),
) -> None:
  """Serves a knowledge base to assistants as tools, by the Model Context Protocol.

  Args:
    path: The folder of the knowledge base.
    write: Whether there are `add`, `delete`, `feedback` and `forget` besides `search`, `read` and
      `answer`.
    port: Port of this machine to serve at over HTTP instead; 0 chooses a free one, which the
      printed address shows. If the environment has a REALM_EDIT_TOKEN, only programs that send it
      are served, and `write` needs one.
    encoder: "sentence-transformers:NAME_OR_DIRECTORY", if it was made with that; a model that only
      the folder names is not loaded.
    generator: A language model, which answers instead of the reader.
  """
  base, generate = KnowledgeBase(path, encoder=encoder), generator.open()
  try:
    from realm_jax.web import mcp_server
  except ImportError as error:
    raise ValueError(f"{error}; tools need the extra: {extras.how_to_install('mcp')}") from error
  server = mcp_server.make_server(base, write=write, generate=generate)
  if port is None:
    serving.warm(base)
    return server.run("stdio")
  token = os.environ.get("REALM_EDIT_TOKEN")
  if write and not token:
    raise ValueError("--write at a port needs a token in the environment's REALM_EDIT_TOKEN")
  with listening.listening("127.0.0.1", port) as listener:
    app = mcp_server.http_app(server, token=token)
    serving.warm(base)
    listener = dataclasses.replace(listener, address=f"{listener.address}/mcp")
    listener.serve(app, note="give %s to an assistant")
