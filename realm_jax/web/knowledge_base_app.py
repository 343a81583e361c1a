"""A knowledge base as a web application: search, documents, generations, and the API."""

import contextlib
import dataclasses
import functools
import json
import os
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import fastapi
import pydantic
from fastapi import Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from realm_jax.knowledge_base import fields
from realm_jax.knowledge_base.generation import Generate
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.web import knowledge_base_api, rendering
from realm_jax.web.application import new_app
from realm_jax.web.editors import Editors
from realm_jax.web.limit_settings import LimitSettings
from realm_jax.web.queries import Example, Text
from realm_jax.web.refusals import ForbiddenError
from realm_jax.web.turns import Turns

_EXAMPLE = """\
curl -s 'http://127.0.0.1:8080/api/search?q=wing&k=3'
curl -s 'http://127.0.0.1:8080/api/search?q=wing' --get --data-urlencode 'where={"year": 1958}'"""
_FOUND, _EXAMPLES, _LISTED, _CHANGES = 10, 6, 50, 10


class Search(pydantic.BaseModel):
  """A question, with a condition on one field, as typed on the page."""

  q: Text = ""
  field: Text = ""
  equal: Text = ""
  least: Text = ""
  most: Text = ""

  def where(self, examples: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the conditions for a search, given a value of each field."""
    if not self.field:
      return {}
    if self.equal:
      words = [word.strip() for word in self.equal.split(",")]
      return {self.field: [value for word in words for value in (word, _value(word))]}
    is_text = isinstance(examples.get(self.field), str)
    bounds = {"gte": self.least, "lte": self.most}
    found = {side: text if is_text else _value(text) for side, text in bounds.items() if text}
    return {self.field: found} if found else {}


class EditForm(pydantic.BaseModel):
  """A change of a document as sent by the page's forms; `fields` is JSON."""

  action: Literal["add", "update", "delete"]
  id: Annotated[Text, pydantic.StringConstraints(min_length=1)]
  title: Text = ""
  text: str = ""
  fields: str = ""

  def apply(self, base: KnowledgeBase) -> None:
    """Changes a document.

    Raises:
      ValueError: If a text is emptied, there is no title either, or the fields are not JSON.
    """
    if self.action == "delete":
      base.delete(knowledge_base_api.document_of(base, self.id).id)
      return
    there = base.document(self.id)
    if not self.text.strip() and (not self.title.strip() or (there and there.text)):
      raise ValueError(f"document {self.id!r:.60} needs text; to be rid of it, delete it")
    more = fields.conditions(self.fields or "{}")
    text = self.text.replace("\r\n", "\n")  # as browsers send lines
    put = base.add if self.action == "add" else base.update
    put([{**more, "id": self.id, "title": self.title, "text": text}])


class FeedbackForm(pydantic.BaseModel):
  """A button of a passage found for `q`; `back` has the search that found it."""

  q: Annotated[Text, pydantic.StringConstraints(min_length=1)]
  id: Text
  passage: int
  useful: bool
  back: Text = ""


def _value(text: str) -> Any:
  """Returns the number, boolean or text that is meant."""
  try:
    found = json.loads(text)
  except (ValueError, RecursionError):
    return text
  return text if isinstance(found, (list, dict)) else found


def make_app(
  base: KnowledgeBase,
  *,
  edit_token: str | None = None,
  limits: LimitSettings = LimitSettings(),
  generate: Generate | None = None,
) -> fastapi.FastAPI:
  """Returns the application that serves pages and API.

  Args:
    generate: What answers instead of the reader.

  Raises:
    ValueError: If the token is too short.
  """
  app = new_app("REALM knowledge base", example=_EXAMPLE, limits=limits)
  editors, turns = Editors(edit_token), Turns()
  answer_with = functools.partial(base.answer, generate=generate)
  app.include_router(knowledge_base_api.routes(base, editors, turns, answer=answer_with))

  @app.get("/ready", summary="Whether the knowledge base is open")
  def ready() -> dict:
    return {"status": "ready", "documents": len(base)}

  def page(name: str, request: Request, *, refusal: str = "", **context) -> Response:
    text = rendering.render(
      f"{name}.html",
      base=base,
      name=os.path.basename(os.path.abspath(base.path)),
      view=name,
      refusal=refusal,
      editors=editors,
      may_edit=editors.include(request),
      answers=generate is not None or base.commit.settings.reader,
      **context,
    )
    return HTMLResponse(text, status_code=422 if refusal else 200)

  def asking(name: str, request: Request, asked: Search, ask: Callable[..., Any]) -> Response:
    values, found, refusal = base.fields, None, ""
    try:
      if asked.q:
        found = ask(asked.q, where=asked.where(values))
    except ValueError as error:
      refusal = str(error)
    examples = [Example(text=text) for text in base.examples(_EXAMPLES)]
    shown = {"asked": asked, "found": found, "values": values, "examples": examples}
    shown["query"] = request.url.query
    return page(name, request, refusal=refusal, **shown)

  @app.get("/", include_in_schema=False)
  def search(request: Request, asked: Annotated[Search, fastapi.Query()]) -> Response:
    return asking("search", request, asked, functools.partial(base.search, k=_FOUND))

  @app.get("/answer", include_in_schema=False)
  def answer(request: Request, asked: Annotated[Search, fastapi.Query()]) -> Response:
    with turns.exclusive() if asked.q else contextlib.nullcontext():
      return asking("answer", request, asked, answer_with)

  def listed(request: Request, first: int = 0, refusal: str = "") -> Response:
    return page(
      "documents",
      request,
      refusal=refusal,
      first=first,
      count=_LISTED,
      documents=base.documents(first=first, count=_LISTED),
      changes=[(time.ctime(change.time), change) for change in base.history[:_CHANGES]],
    )

  @app.get("/documents", include_in_schema=False)
  def documents(request: Request, first: knowledge_base_api.First = 0) -> Response:
    return listed(request, first)

  @app.get("/document", include_in_schema=False)
  def document(request: Request, id: Text) -> Response:
    return page("document", request, document=knowledge_base_api.document_of(base, id))

  @app.post("/documents", include_in_schema=False)
  def edit(request: Request, form: Annotated[EditForm, Form()]) -> Response:
    editors.check(request)
    try:
      form.apply(base)
    except ValueError as error:
      return listed(request, refusal=str(error))
    query = urllib.parse.urlencode({"id": form.id})
    after = "/documents" if form.action == "delete" else f"/document?{query}"
    return RedirectResponse(after, status_code=303)

  @app.post("/feedback", include_in_schema=False)
  def feedback(request: Request, form: Annotated[FeedbackForm, Form()]) -> Response:
    editors.check(request)
    passage = [(form.id, form.passage)]
    useful, not_useful = (passage, []) if form.useful else ([], passage)
    base.feedback(form.q, useful=useful, not_useful=not_useful)
    return RedirectResponse("/?" + form.back, status_code=303)

  @app.post("/sign_in", include_in_schema=False)
  def sign_in(request: Request, token: Annotated[Text, Form()]) -> Response:
    response = RedirectResponse("/documents", status_code=303)
    try:
      editors.sign_in(response, token)
    except ForbiddenError as error:
      return listed(request, refusal=str(error))
    return response

  @app.get("/generations", include_in_schema=False)
  def generations(request: Request) -> Response:
    settings = dataclasses.asdict(base.commit.settings)
    return page("generations", request, commit=base.commit, settings=settings)

  return app
