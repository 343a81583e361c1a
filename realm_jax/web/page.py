"""The inspector's page: a query, its answer from each model, the passages read, and the edits."""

import dataclasses
from collections.abc import Sequence

from realm_jax.answering.answerer import Answerer
from realm_jax.answering.explanation import Explanation
from realm_jax.text.wordpieces import MASK
from realm_jax.web.queries import Example
from realm_jax.web.rendering import render

_SHOWN_RANKS = 8
_MAX_FOLLOWED = 7


@dataclasses.dataclass(frozen=True)
class RankHistory:
  """A passage and its rank in each generation, from 1; None if it is not among the best eight."""

  passage_id: int
  ranks: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelView:
  """A model under its name, and its answer; None if it was not queried."""

  name: str
  answerer: Answerer
  explanation: Explanation | None

  def rank_histories(self) -> list[RankHistory]:
    """Tracks the newest generation's best passages, and the best one of each older generation."""
    rankings = self.explanation.rankings if self.explanation else ()
    if len(rankings) < 2:
      return []
    followed = [i for i in rankings[-1].passage_ids if i >= 0][:5]
    followed += [i for ranking in rankings[:-1] for i in ranking.passage_ids[:1]]
    shown = [ranking.passage_ids[:_SHOWN_RANKS] for ranking in rankings]
    return [
      RankHistory(i, tuple(ids.index(i) + 1 if i in ids else None for ids in shown))
      for i in list(dict.fromkeys(followed))[:_MAX_FOLLOWED]
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EditView:
  """A passage that was changed, added or removed."""

  passage_id: int
  kind: str
  title: str
  text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class PageView:
  """Everything that the page shows.

  Attributes:
    models: One model, or two side by side.
    text: The query.
    target: The answer to explain; empty explains the most likely one.
    refusal: Why there is no answer.
  """

  models: Sequence[ModelView]
  num_passages: int
  text: str = ""
  target: str = ""
  refusal: str = ""
  edits: Sequence[EditView] = ()
  examples: Sequence[Example] = ()


def rendered(view: PageView) -> str:
  """Returns the page."""
  return render(
    "inspector.html",
    view=view,
    kinds={model.answerer.kind for model in view.models},
    mask_token=MASK,
  )
