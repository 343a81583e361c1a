"""What a model answers and why, as HTML: answers, three readings, passages as cards."""

from realm_jax.datatypes import MASK
from realm_jax.inference.explanation import AnswerOption, Evidence, Explanation
from realm_jax.inspector.markup import (
  Markup,
  bar,
  element,
  hidden,
  highlighted,
  join,
  probability,
  signed,
)


def answered(explanation: Explanation, *, target: str) -> Markup:
  """Shows the sentence with its answer, and the other answers."""
  best = explanation.answers[0]
  before, masked, after = explanation.query.partition(MASK)
  return element(
    "section",
    {"class": "answer"},
    None if masked else element("p", {"class": "question"}, explanation.query),
    element(
      "p",
      {"class": "filled"},
      before if masked else None,
      element("mark", None, best.text),
      after,
    ),
    element(
      "p",
      {"class": "figure"},
      element("span", {"class": "number"}, probability(best.probability)),
      " ",
      element("span", {"class": "unit"}, "p(y|x)", " of the answer asked for" if target else None),
    ),
    _three_readings(best),
    _others(explanation.answers[1:]),
  )


def _three_readings(best: AnswerOption) -> Markup:
  """As in table 3 of Guu et al. 2020: the same answer without, with one, over all passages.

  A model that answers with words of a passage has no answer without one.
  """
  rows = (
    ("without retrieval", "p(y|∅,x)", best.probability_without_retrieval, "prior"),
    ("given the best passage", "p(y|z,x)", best.probability_given_best, "reading"),
    ("over all passages", "p(y|x)", best.probability, "product"),
  )
  return element(
    "table",
    {"class": "readings"},
    element("caption", None, "How likely “", best.text, "” is"),
    element(
      "tbody",
      None,
      *(
        element(
          "tr",
          None,
          element("th", {"scope": "row"}, name, " ", element("span", {"class": "symbol"}, symbol)),
          element("td", {"class": "bar-cell"}, bar(value, kind=kind)),
          element("td", {"class": "value"}, probability(value)),
        )
        for name, symbol, value, kind in rows
        if value is not None
      ),
    ),
  )


def _others(options: tuple[AnswerOption, ...]) -> Markup | None:
  if not options:
    return None
  return element(
    "details",
    {"class": "others"},
    element("summary", None, f"{len(options)} other answers"),
    element(
      "ol",
      {"start": 2},
      *(
        element(
          "li",
          None,
          element("span", {"class": "option"}, option.text),
          " ",
          element("span", {"class": "value"}, probability(option.probability)),
        )
        for option in options
      ),
    ),
  )


def cards(explanation: Explanation, *, carried: Markup, name: str, editable: bool) -> Markup:
  """Shows the passages that were read, likeliest first, each with its part in the answer.

  Args:
    explanation: of the answer.
    carried: hidden fields that bring the reader back to this query.
    name: of the model, for the ids of elements.
    editable: whether the cards can be edited here.
  """
  return element(
    "ol",
    {"class": "cards"},
    *(
      _card(passage, rank, explanation, carried=carried, name=name, editable=editable)
      for rank, passage in enumerate(explanation.passages, 1)
    ),
  )


def _card(
  passage: Evidence,
  rank: int,
  explanation: Explanation,
  *,
  carried: Markup,
  name: str,
  editable: bool,
) -> Markup:
  null = passage.passage_id < 0
  heading = f"{name}-passage-{rank}"
  return element(
    "li",
    {"class": "card null" if null else "card", "data-passage": passage.passage_id},
    element(
      "article",
      {"aria-labelledby": heading},
      element(
        "header",
        None,
        element("span", {"class": "rank", "aria-hidden": "true"}, rank),
        element(
          "h3", {"id": heading}, "Null passage" if null else passage.title or "Without a title"
        ),
        element("span", {"class": "badge"}, "edited") if passage.edited else None,
        None if null else element("span", {"class": "identity"}, f"№ {passage.passage_id}"),
      ),
      element(
        "p",
        {"class": "text"},
        "Nothing is read beside the query: what the model knows by heart."
        if null
        else highlighted(passage.text, passage.spans),
      ),
      _bars(passage),
      _effect(passage, explanation),
      _tools(passage, carried) if editable and not null else None,
    ),
  )


def _bars(passage: Evidence) -> Markup:
  rows = (
    ("retrieved", "p(z|x)", passage.retrieval_probability, "prior"),
    ("says the answer", "p(y|z,x)", passage.answer_probability, "reading"),
    ("adds to p(y|x)", "p(y,z|x)", passage.contribution, "product"),
  )
  return element(
    "dl",
    {"class": "bars"},
    *(
      element(
        "div",
        None,
        element("dt", None, name, " ", element("span", {"class": "symbol"}, symbol)),
        element("dd", None, bar(value, kind=kind), element("span", None, probability(value))),
      )
      for name, symbol, value, kind in rows
    ),
  )


def _effect(passage: Evidence, explanation: Explanation) -> Markup:
  before = probability(explanation.answers[0].probability)
  after = probability(passage.probability_without)
  same = passage.answer_without == explanation.likeliest
  null = passage.passage_id < 0
  return element(
    "p",
    {"class": "effect"},
    element("span", {"class": "effect-part"}, "Alone it says ", element("b", None, passage.says)),
    None
    if null or passage.utility is None
    else element(
      "span",
      {"class": "effect-part", "title": "log p(y|z,x) − log p(y|∅,x)"},
      "utility ",
      element(
        "b", {"class": "good" if passage.utility > 0 else "bad"}, signed(passage.utility, digits=1)
      ),
    ),
    element(
      "span",
      {"class": "effect-part"},
      "Without it ",
      element("b", None, "the same answer" if same else passage.answer_without or "no answer"),
      None if after == before else f", p {before} → {after}",
    ),
  )


def _tools(passage: Evidence, carried: Markup) -> Markup:
  target = f"passage-{passage.passage_id}"
  return element(
    "div",
    {"class": "tools"},
    element(
      "details",
      {"class": "edit"},
      element("summary", None, "Edit", element("span", {"class": "unseen"}, f" {passage.title}")),
      passage_form(
        action="change",
        label="Save and ask again",
        carried=join(carried, hidden("passage_id", passage.passage_id)),
        prefix=target,
        title=passage.title,
        text=passage.text,
      ),
    ),
    _button("remove", "Remove", passage, carried),
    _button("undo", "Undo", passage, carried) if passage.edited else None,
  )


def _button(action: str, label: str, passage: Evidence, carried: Markup) -> Markup:
  return element(
    "form",
    {"method": "post", "action": "/edit", "data-live": True},
    carried,
    hidden("passage_id", passage.passage_id),
    hidden("action", action),
    element(
      "button",
      {"class": "quiet"},
      label,
      element("span", {"class": "unseen"}, f" {passage.title}"),
    ),
  )


def passage_form(
  *, action: str, label: str, carried: Markup, prefix: str, title: str = "", text: str = ""
) -> Markup:
  """Makes the form that writes a passage.

  Args:
    action: what is done with it: "change" or "add".
    label: of the button.
    carried: hidden fields.
    prefix: of the ids of elements.
    title: as it is now.
    text: as it is now.
  """
  return element(
    "form",
    {"method": "post", "action": "/edit", "data-live": True, "class": "write"},
    carried,
    hidden("action", action),
    element("label", {"for": f"{prefix}-title"}, "Title"),
    element("input", {"id": f"{prefix}-title", "name": "title", "value": title, "maxlength": 500}),
    element("label", {"for": f"{prefix}-text"}, "Text"),
    element(
      "textarea",
      {"id": f"{prefix}-text", "name": "text", "rows": 3, "required": True, "maxlength": 8000},
      text,
    ),
    element("button", None, label),
  )
