"""Searches a knowledge base."""

import os
import sys

from realm_jax.knowledge_base import fields
from realm_jax.knowledge_base.commits import Ranking
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase


def search(
  path: str,
  question: str,
  *,
  k: int = 5,
  where: str = "{}",
  by: Ranking | None = None,
  min_answerable: float | None = None,
) -> None:
  """Prints the best passages, with the words of the question in bold on a terminal.

  Args:
    path: The folder of the knowledge base.
    question: What to search for.
    k: Passages to show.
    where: Conditions on fields, as JSON such as `{"year": 1958}`, `{"kind": ["a", "b"]}`,
      `{"year": {"gte": 1950, "lt": 1960}}`, `{"kind": {"ne": "a"}}`, `{"year": {"exists": true}}`.
    by: What ranks: words, encoder or fused, which is both; None takes what training has chosen.
    min_answerable: The least probability that an answer is among the passages, below which none is
      shown; `realm kb train` learns it from questions.

  Raises:
    FileNotFoundError: If there is no knowledge base.
    ValueError: If `where` is not such an object, no document has one of its fields, or there is no
      encoder to rank by, or nothing was learned that `min_answerable` needs.
  """
  hits = KnowledgeBase(path).search(
    question, k=k, where=fields.conditions(where), by=by, min_answerable=min_answerable
  )
  marks = sys.stdout.isatty() and "NO_COLOR" not in os.environ
  print(hits.shown(lambda word: f"\x1b[1m{word}\x1b[0m" if marks else word), flush=True)
