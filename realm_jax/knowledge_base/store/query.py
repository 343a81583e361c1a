"""A question and how it is asked: what flags, JSON, forms and keywords all become."""

import dataclasses
from collections.abc import Callable
from typing import Annotated

from realm_jax.foundations import choices
from realm_jax.knowledge_base.store import columns
from realm_jax.knowledge_base.store.commits import Ranking
from realm_jax.knowledge_base.store.hits import Hits, check_question

DEFAULT_K = 5
Generate = Callable[[str, Hits], str | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Query(choices.Checked):
  """A question to a knowledge base.

  Attributes:
    text: The question, or words to search for.
    k: Passages to find or to read; there are fewer only if fewer match. None finds 5, and reads
      as many as suit a reader.
    where: Conditions on fields, also as JSON, such as `{"year": 1958}`, `{"kind": ["a", "b"]}`,
      `{"year": {"gte": 1950, "lt": 1960}}`, `{"kind": {"ne": "a"}}`, `{"year": {"exists": true}}`.
    by: What ranks: words, encoder or fused, which is both; None takes what training has chosen.
    exact: Whether to read all embeddings, also where there are 20,000 or more.
    min_answerable: The least probability that an answer is among the passages, below which nothing
      is found; training on questions learns it.
    generate: What writes an answer instead of a reader; see `KnowledgeBase.answer`.
  """

  text: Annotated[str, choices.FROM_CALLER] = ""
  k: choices.Count | None = None
  where: Annotated[columns.Where | str | None, choices.JSON] = None
  by: Ranking | None = None
  exact: bool = False
  min_answerable: choices.Share | None = None
  generate: Annotated[Generate | None, choices.FROM_CALLER] = None

  def __post_init__(self):
    check_question(self.text)
    super().__post_init__()

  @property
  def conditions(self) -> columns.Where:
    """The conditions on fields; none without any."""
    return columns.conditions(self.where) if isinstance(self.where, str) else self.where or {}
