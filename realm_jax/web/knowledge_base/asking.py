"""What others may ask a knowledge base: by an address, a form or a tool, within bounds."""

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import pydantic

from realm_jax.foundations import choices
from realm_jax.knowledge_base.store import columns
from realm_jax.knowledge_base.store.query import Query
from realm_jax.web.application import MAX_TEXT

MAX_FOUND, MAX_AROUND = 100, 20
_MAX_CONDITIONS = 10_000  # characters as JSON
# Others of `Query` may take long, or call what only programs have.
_NAMES = ("question", "k", "where", "by", "min_answerable", "newer", "explain")
_NAMES += ("per_document", "distinct", "around", "after")
_MEANINGS, _KEYWORD = choices.meanings(inspect.getdoc(Query) or ""), inspect.Parameter.KEYWORD_ONLY
# Not `str | None`: of what may be no string, MCP's library reads JSON that a string has.
_Text = Annotated[str, pydantic.BeforeValidator(lambda text: "" if text is None else text)]
_KINDS = {"newer": _Text, "after": _Text}
_OWN = [
  own.replace(
    kind=_KEYWORD,
    annotation=Annotated[_KINDS.get(name, own.annotation), pydantic.Field(description=text)],
  )
  for name, own in inspect.signature(Query).parameters.items()
  if name in _NAMES
  for text in [_MEANINGS.get(name)]  # none if Python leaves out docstrings
]
_EMPTY = inspect.Parameter.empty
_FIELDS: Any = {o.name: (o.annotation, ... if o.default is _EMPTY else o.default) for o in _OWN}
_Asked = pydantic.create_model("_Asked", **_FIELDS)
ADDRESS = {  # for the documentation of an API
  "parameters": [
    {"in": "query", "name": "q" if name == "question" else name, "schema": schema}
    for name, schema in _Asked.model_json_schema()["properties"].items()
  ]
}


def query(given: Mapping[str, Any]) -> Query:
  """Returns what is asked, by values as JSON has them or by texts; what is empty is left out.

  Raises:
    ValueError: If a value is not of its type or out of bounds.
  """
  given = {**given, "question": given.get("q", given.get("question"))}
  given = {name: given[name] for name in _NAMES if given.get(name) not in (None, "")}
  if isinstance(where := given.get("where"), str):
    given["where"] = columns.conditions(where)
  asked = Query(**dict(_Asked.model_validate(given)))
  for name, text in (("question", asked.question), ("after", asked.after or "")):
    if len(text) > MAX_TEXT:
      raise ValueError(f"{name} has {len(text):,} characters; the most are {MAX_TEXT:,}")
  if asked.k > MAX_FOUND:
    raise ValueError(f"k={asked.k}; the most are {MAX_FOUND}")
  if asked.around > MAX_AROUND:
    raise ValueError(f"around={asked.around}; the most are {MAX_AROUND}")
  try:
    size = len(json.dumps(asked.where, allow_nan=False))
  except RecursionError as error:
    raise ValueError("where is nested too deep") from error
  if size > _MAX_CONDITIONS:
    raise ValueError(f"where has {size:,} characters as JSON; the most are {_MAX_CONDITIONS:,}")
  return asked


def tool(call: Callable[[Query], Any]) -> Callable[..., Any]:
  """Returns a function of a query as one of its fields, which have types and descriptions."""

  @functools.wraps(call)
  def with_keywords(**given: Any) -> Any:
    return call(query(given))

  vars(with_keywords)["__signature__"] = inspect.signature(call).replace(parameters=_OWN)
  return with_keywords
