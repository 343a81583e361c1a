"""How the ranking of passages changed from one index generation to the next, drawn as lines."""

import itertools
from collections.abc import Callable

from realm_jax.inference.explanation import Explanation
from realm_jax.inspector.markup import Markup, element

_SHOWN_RANKS = 8
_LEFT, _TOP, _ROW, _COLUMN = 34, 26, 26, 84


def drawn(
  explanation: Explanation, *, title: Callable[[int], str], text: Callable[[int], str]
) -> Markup | None:
  """Draws the ranks of the passages that lead in the newest generation, and lists them.

  Args:
    explanation: with rankings.
    title: of a passage id.
    text: of a passage id.
  """
  rankings = explanation.rankings
  if len(rankings) < 2:
    return None
  followed = [i for i in rankings[-1].passage_ids if i >= 0][:5]
  for ranking in rankings[:-1]:
    followed += [i for i in ranking.passage_ids[:1] if i not in followed]
  followed = followed[:7]
  return element(
    "section",
    {"class": "rankings"},
    element("h3", None, "From generation to generation"),
    element(
      "p",
      {"class": "note"},
      "Rank of each passage, asked with the query encoder of that time"
      if all(ranking.own_query_encoder for ranking in rankings)
      else "Rank of each passage; where a checkpoint is gone, the query is embedded as it is now",
      ". Edited passages are shown as they were.",
    ),
    element("div", {"class": "scroll", "tabindex": 0}, _lines(rankings, followed)),
    _key(followed, title, text),
    _table(rankings, followed, title),
  )


def _rank(ranking, passage_id: int) -> int | None:
  shown = ranking.passage_ids[:_SHOWN_RANKS]
  return shown.index(passage_id) + 1 if passage_id in shown else None


def _lines(rankings, followed: list[int]) -> Markup:
  below = _SHOWN_RANKS + 1
  width = _LEFT + _COLUMN * (len(rankings) - 1) + 40
  height = _TOP + _ROW * below + 4

  def point(number: int, rank: int | None) -> tuple[int, int]:
    return _LEFT + _COLUMN * number, _TOP + _ROW * ((rank or below) - 1) + 12

  parts = []
  for number, ranking in enumerate(rankings):
    x = _LEFT + _COLUMN * number
    parts.append(element("text", {"x": x, "y": 14, "class": "axis"}, f"g{ranking.generation}"))
  for rank in range(1, _SHOWN_RANKS + 1):
    y = point(0, rank)[1]
    parts.append(element("text", {"x": 8, "y": y + 4, "class": "axis start"}, rank))
    parts.append(
      element("line", {"x1": _LEFT - 6, "x2": width - 30, "y1": y, "y2": y, "class": "grid"})
    )
  for colour, passage_id in enumerate(followed):
    ranks = [_rank(ranking, passage_id) for ranking in rankings]
    points = [point(number, rank) for number, rank in enumerate(ranks)]
    for number, pair in enumerate(itertools.pairwise(ranks)):
      if any(pair):
        (x1, y1), (x2, y2) = points[number : number + 2]
        kind = "rank-line" if all(pair) else "rank-line leaving"
        ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
        parts.append(element("line", {**ends, "class": f"{kind} colour-{colour}"}))
    for (x, y), rank in zip(points, ranks, strict=True):
      if rank:
        parts.append(element("circle", {"cx": x, "cy": y, "r": 5, "class": f"colour-{colour}"}))
  return element(
    "svg",
    {
      "viewBox": f"0 0 {width} {height}",
      "class": "rank-chart",
      "aria-hidden": "true",
    },
    *parts,
  )


def _key(followed: list[int], title: Callable[[int], str], text: Callable[[int], str]) -> Markup:
  return element(
    "ul",
    {"class": "key"},
    *(
      element(
        "li",
        None,
        element(
          "svg",
          {"width": 12, "height": 12, "aria-hidden": "true"},
          element("circle", {"cx": 6, "cy": 6, "r": 5, "class": f"colour-{colour}"}),
        ),
        element("b", None, title(passage_id)),
        f" № {passage_id} ",
        element("span", {"class": "note"}, text(passage_id)),
      )
      for colour, passage_id in enumerate(followed)
    ),
  )


def _table(rankings, followed: list[int], title: Callable[[int], str]) -> Markup:
  heads = [
    element("th", {"scope": "col"}, f"g{r.generation}, step {r.training_step}") for r in rankings
  ]
  rows = [
    element(
      "tr",
      None,
      element("th", {"scope": "row"}, f"{title(passage_id)} № {passage_id}"),
      *(element("td", None, _rank(r, passage_id) or "–") for r in rankings),
    )
    for passage_id in followed
  ]
  return element(
    "details",
    {"class": "as-table"},
    element("summary", None, "As a table"),
    element(
      "div",
      {"class": "scroll", "tabindex": 0},
      element(
        "table",
        None,
        element("caption", {"class": "unseen"}, "Ranks of passages by index generation"),
        element("thead", None, element("tr", None, element("td", None), *heads)),
        element("tbody", None, *rows),
      ),
    ),
  )
