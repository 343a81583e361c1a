"""The inspector's page: a query, its answer with each model, the passages, what was edited."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

from realm_jax.inference.explanation import Explanation
from realm_jax.inspector import answers, rankings
from realm_jax.inspector.markup import Markup, document, element, hidden, join


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
  """A query to try; `answer` is what is right, empty if not known."""

  text: str
  answer: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelView:
  """A model and what it says.

  Attributes:
    name: as shown.
    step: of its checkpoint.
    generation: of its index.
    kind: what it is asked: a sentence with a `[MASK]`, or a question.
    explanation: None where nothing was asked of it.
    title: of a passage id, as the corpus has it.
    text: likewise.
  """

  name: str
  step: int
  generation: int
  kind: Literal["mask", "question"]
  explanation: Explanation | None
  title: Callable[[int], str]
  text: Callable[[int], str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EditView:
  """A passage that was changed, added or removed."""

  passage_id: int
  kind: str
  title: str
  text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class PageView:
  """All that the page shows.

  Attributes:
    models: one, or two side by side.
    num_passages: of the corpus.
    text: the query.
    target: the answer asked for, empty for the likeliest one.
    refusal: why there is no answer.
    edits: what was edited.
    lasting: whether edits are kept for all and for good.
    examples: queries to try.
  """

  models: Sequence[ModelView]
  num_passages: int
  text: str = ""
  target: str = ""
  refusal: str = ""
  edits: Sequence[EditView] = ()
  lasting: bool = False
  examples: Sequence[Example] = ()


def rendered(view: PageView) -> str:
  """Returns the page."""
  carried = join(hidden("q", view.text), hidden("answer", view.target))
  heading = f"{view.text} — REALM inspector" if view.text else "REALM inspector"
  return document(
    title=heading,
    head=join(
      element("link", {"rel": "stylesheet", "href": "/static/inspector.css"}),
      element("link", {"rel": "icon", "href": "/static/icon.svg", "type": "image/svg+xml"}),
      element("script", {"src": "/static/inspector.js", "defer": True}),
    ),
    body=element(
      "body",
      None,
      element("a", {"class": "skip", "href": "#main"}, "To the answer"),
      _masthead(view),
      element("p", {"id": "status", "class": "unseen", "role": "status", "aria-live": "polite"}),
      element(
        "main",
        {"id": "main", "tabindex": -1},
        _ask_form(view),
        element("p", {"class": "refusal", "role": "alert"}, view.refusal) if view.refusal else None,
        _results(view, carried),
        _corpus(view, carried),
      ),
      _foot(),
    ),
  )


def _masthead(view: PageView) -> Markup:
  facts = [f"{view.num_passages:,} passages"]
  for model in view.models:
    label = f"{model.name}: " if len(view.models) > 1 else ""
    facts.append(f"{label}step {model.step:,}, generation {model.generation}")
  return element(
    "header",
    {"class": "masthead"},
    element(
      "h1",
      None,
      element(
        "a", {"href": "/", "class": "mark-name"}, "REALM ", element("span", None, "inspector")
      ),
    ),
    element("ul", {"class": "facts"}, *(element("li", None, fact) for fact in facts)),
  )


def _ask_form(view: PageView) -> Markup:
  return element(
    "form",
    {"method": "get", "action": "/", "class": "ask", "role": "search", "data-live": True},
    element("label", {"for": "q"}, _what_to_ask(view)),
    element(
      "div",
      {"class": "ask-row"},
      element(
        "textarea",
        {
          "id": "q",
          "name": "q",
          "rows": 2,
          "required": True,
          "maxlength": 2000,
          "placeholder": "The [MASK] is the currency of the United Kingdom."
          if _fills_masks(view)
          else "What is the currency of the United Kingdom?",
        },
        view.text,
      ),
      element("button", {"class": "primary"}, "Ask"),
    ),
    element(
      "div",
      {"class": "target-row"},
      element("label", {"for": "answer"}, "Explain this answer (optional)"),
      element(
        "input",
        {
          "id": "answer",
          "name": "answer",
          "value": view.target,
          "maxlength": 200,
          "placeholder": "the likeliest one",
        },
      ),
    ),
    _examples(view.examples),
  )


def _fills_masks(view: PageView) -> bool:
  return any(model.kind == "mask" for model in view.models)


def _what_to_ask(view: PageView) -> Markup:
  masked = join("A sentence with ", element("code", None, "[MASK]"), " for what is asked")
  if all(model.kind == "mask" for model in view.models):
    return masked
  return join(masked, ", or a question") if _fills_masks(view) else join("A question")


def _examples(examples: Sequence[Example]) -> Markup | None:
  if not examples:
    return None
  return element(
    "div",
    {"class": "examples"},
    element("span", {"id": "examples-label"}, "Try"),
    element(
      "ul",
      {"aria-labelledby": "examples-label"},
      *(
        element(
          "li",
          None,
          element(
            "button",
            {"type": "button", "data-text": example.text, "data-answer": example.answer},
            example.text,
          ),
        )
        for example in examples
      ),
    ),
  )


def _results(view: PageView, carried: Markup) -> Markup:
  asked = [model for model in view.models if model.explanation is not None]
  if not asked:
    return element(
      "section",
      {"class": "empty", "id": "results"},
      element(
        "p",
        None,
        "Ask, and the page shows which passages were read, how far each is trusted, what each "
        "says, and what the answer would be without it. Edit a passage and the answer follows: "
        "nothing is trained again.",
      ),
    )
  columns = []
  for number, model in enumerate(asked):
    first = number == 0
    columns.append(
      element(
        "section",
        {"class": "model", "aria-labelledby": f"model-{number}"},
        element(
          "h2",
          {"id": f"model-{number}"},
          model.name if len(asked) > 1 else "Answer",
        ),
        answers.answered(model.explanation, target=view.target),
        element("h2", {"class": "cards-title"}, "Passages read"),
        answers.cards(model.explanation, carried=carried, name=f"m{number}", editable=first),
      )
    )
  count = "two" if len(asked) > 1 else "one"
  return element(
    "div",
    {"id": "results"},
    element("div", {"class": f"models {count}"}, *columns),
    *(rankings.drawn(model.explanation, title=model.title, text=model.text) for model in asked),
  )


def _corpus(view: PageView, carried: Markup) -> Markup:
  return element(
    "section",
    {"class": "corpus", "aria-labelledby": "corpus"},
    element("h2", {"id": "corpus"}, "The corpus, as you edited it"),
    element(
      "p",
      {"class": "note"},
      "Edits are kept for everybody who asks here, until they are undone."
      if view.lasting
      else "Edits are yours alone and end with this session; the corpus on disk stays as it is.",
    ),
    _edit_list(view, carried) if view.edits else None,
    element(
      "details",
      {"class": "add"},
      element("summary", None, "Add a passage"),
      answers.passage_form(
        action="add", label="Add and ask again", carried=carried, prefix="new-passage"
      ),
    ),
  )


def _edit_list(view: PageView, carried: Markup) -> Markup:
  def undo(label: str, *fields: Markup, about: str = "") -> Markup:
    return element(
      "form",
      {"method": "post", "action": "/edit", "data-live": True},
      carried,
      *fields,
      element(
        "button", {"class": "quiet"}, label, element("span", {"class": "unseen"}, f" {about}")
      ),
    )

  rows = [
    element(
      "li",
      {"class": edit.kind},
      element("span", {"class": "badge"}, edit.kind),
      element("span", None, element("b", None, edit.title), " ", edit.text),
      undo(
        "Undo",
        hidden("action", "undo"),
        hidden("passage_id", edit.passage_id),
        about=edit.title,
      ),
    )
    for edit in view.edits
  ]
  return join(
    element("ul", {"class": "edits"}, *rows),
    undo("Undo all edits", hidden("action", "undo_all")) if len(view.edits) > 1 else None,
  )


def _foot() -> Markup:
  return element(
    "footer",
    {"class": "foot"},
    "p(y|x) = Σ",
    element("sub", None, "z"),
    " p(z|x) p(y|z,x). ",
    element("a", {"href": "/docs"}, "HTTP API"),
  )
