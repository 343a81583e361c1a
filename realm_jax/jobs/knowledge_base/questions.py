"""The verbs of `realm kb` that ask a knowledge base, or learn from questions."""

import os
import sys

from realm_jax.foundations import choices
from realm_jax.knowledge_base.knowledge_base import Opening
from realm_jax.knowledge_base.language_model import GeneratorSettings
from realm_jax.knowledge_base.store.query import Query


def search(opening: Opening, query: Query) -> None:
  """Searches a knowledge base, and prints the best passages.

  Example:
    realm kb search kb "what causes the flutter of a wing" --k=3
    realm kb search kb flutter --where='{"year": {"gte": 1950}}'

  Args:
    opening: The knowledge base.
    query: What to search for.
  """
  hits = opening.open().search(**vars(query))
  marks = sys.stdout.isatty() and "NO_COLOR" not in os.environ
  print(hits.shown(lambda word: f"\x1b[1m{word}\x1b[0m" if marks else word), flush=True)


def ask(
  opening: Opening, query: Query, *, generator: GeneratorSettings = GeneratorSettings()
) -> None:
  """Answers a question from a knowledge base, with its reader or a language model.

  Example:
    realm kb ask kb "what causes flutter" --generator=http://127.0.0.1:8000/v1
    realm kb ask kb "and what prevents it" --after="what causes flutter"

  Args:
    opening: The knowledge base.
    query: What to ask.
    generator: A language model, which answers instead of the reader.
  """
  base, generate = opening.open(), generator.open()
  print(base.answer(**{**vars(query), "generate": generate}), flush=True)


def train(
  opening: Opening, questions: str | None = None, *, minutes: choices.Positive | None = None
) -> None:
  """Makes searches of a knowledge base better: chooses what ranks, or trains on questions.

  Example:
    realm kb train kb questions.jsonl

  Args:
    opening: The knowledge base.
    questions: JSON Lines with `question` and `answer`, at least 100; None chooses between words,
      the encoder and both by probes made from the documents.
    minutes: When to stop learning from questions, at the latest; 30 by default.
  """
  print(opening.open().train(questions=questions, minutes=minutes), flush=True)


def evaluate(opening: Opening, questions: str) -> None:
  """Measures how well a knowledge base finds: by words, by its encoder and by both.

  Example:
    realm kb evaluate kb questions.jsonl

  Args:
    opening: The knowledge base.
    questions: JSON Lines with `question` and `answer`, or a collection in BEIR's format: a folder
      with `queries.jsonl` and `qrels/test.tsv`.
  """
  print(opening.open().evaluate(questions), flush=True)
