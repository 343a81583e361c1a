"""A knowledge base as a web application: search, documents, generations, and the HTTP API."""

import dataclasses
import json
import os
import time
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import fastapi
import pydantic
from fastapi import Depends, File, Form, Request, UploadFile
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.language_model import ChatServer, Generate
from realm_jax.knowledge_base.store.hits import Answer
from realm_jax.knowledge_base.store.query import Query
from realm_jax.web import application, streams
from realm_jax.web.application import (
  REFUSED,
  Editors,
  Example,
  Id,
  Refusal,
  Text,
  Turns,
  new_app,
  route_class,
)
from realm_jax.web.knowledge_base import asking
from realm_jax.web.knowledge_base.asking import MAX_FOUND
from realm_jax.web.knowledge_base.forms import (
  ChangedError,
  EditForm,
  FeedbackForm,
  Search,
  document_of,
  record,
  state,
  upload,
)
from realm_jax.web.listening import LimitSettings

_EXAMPLE = """\
curl -s 'http://127.0.0.1:8080/api/search?q=wing&k=3'
curl -s 'http://127.0.0.1:8080/api/search?q=wing' --get --data-urlencode 'where={"year": 1958}'"""
_SHOWN, _MORE, _EXAMPLES, _LISTED, _CHANGES = "10", 30, 6, 50, 10
_SEARCHING, _EDITING = 40, 4  # threads; changes wait for each other anyway
_FORM_BYTES = 32 * 2**20  # which the page names
_BEGINNING = 90  # characters of a text that the list shows
Count = Annotated[int, fastapi.Query(ge=1, le=MAX_FOUND)]
First = Annotated[int, fastapi.Query(ge=0, lt=2**31)]


class Records(pydantic.BaseModel):
  """Documents with `id`, `text` or `title`, and fields of any name.

  `replace` puts them in place of those with their ids; otherwise such are refused.
  """

  model_config = pydantic.ConfigDict(extra="forbid")

  documents: Annotated[list[dict[str, Any]], pydantic.Field(min_length=1)]
  replace: bool = False

  @pydantic.field_validator("documents")
  @classmethod
  def _has_no_nan(cls, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    try:
      json.dumps(documents, allow_nan=False)  # which Python's parser accepts, and JSON does not
    except RecursionError as error:
      raise ValueError("documents are nested too deep") from error
    return documents


class Feedback(pydantic.BaseModel):
  """What passages were useful for a question: ids of documents, or these with the passage's place.

  `answer` is found in passages.
  """

  model_config = pydantic.ConfigDict(extra="forbid")

  question: Annotated[Text, pydantic.StringConstraints(min_length=1)]
  answer: list[Text] | Text = ""
  useful: list[tuple[Id, int] | Id] = []
  not_useful: list[tuple[Id, int] | Id] = []


def make_app(
  base: KnowledgeBase,
  *,
  edit_token: str | None = None,
  limits: LimitSettings = LimitSettings(),
  generate: Generate | None = None,
) -> fastapi.FastAPI:
  """Returns the application that serves pages and API."""
  editors = Editors(edit_token)

  def answer_to(query: Query, told: streams.Told | None) -> Answer:
    writes = (
      dataclasses.replace(generate, told=told) if isinstance(generate, ChatServer) else generate
    )
    return base.answer(**{**vars(query), "generate": writes})

  answers, edits, others, status = (
    Turns(limits.answers),
    Turns(_EDITING, admitted=limits.requests),
    Turns(_SEARCHING, admitted=limits.requests),
    Turns(4, admitted=limits.requests),
  )

  def turns(path: str, methods: set[str]) -> Turns:
    if path == "/ready":
      return status
    return edits if methods & {"POST", "DELETE"} else others

  async def answering(
    request: Request, call: Callable[[streams.Told | None], Any], *, last: str
  ) -> Any:
    """Returns what a call returns once it has a turn, or its events, if the client wants them."""
    if streams.wanted(request):
      return await streams.respond(request, answers, call, last=last, reason=reason)
    return await answers.taken_by(call)(None)

  def reason(error: Exception) -> str:
    """Returns what is wrong without the folder, which is nobody's business."""
    path = base.path.rstrip("/") or "/"
    return str(error).replace(path, os.path.basename(path) or "the knowledge base")

  def body_bytes(request: Request) -> int:
    """Returns how much a client may send: whole documents, if it is a form of who may add them."""
    is_form = request.url.path in ("/documents", "/upload") and editors.include(request)
    return max(limits.body_bytes, _FORM_BYTES) if is_form else limits.body_bytes

  route = route_class(turns)
  page = _page_of(base, editors, reason, has_generator=generate is not None)
  routers = (
    _api(base, editors, answer_to, answering, route=route),
    _pages(base, editors, answer_to, answering, page, route=route),
    _document_pages(base, editors, page, route=route),
  )
  return new_app(
    "REALM knowledge base",
    *routers,
    example=_EXAMPLE,
    limits=limits,
    reason=reason,
    body_bytes=body_bytes,
  )


def _page_of(
  base: KnowledgeBase,
  editors: Editors,
  reason: Callable[[Exception], str],
  *,
  has_generator: bool,
) -> Callable[..., Response]:
  """Returns what makes a page of its template's name, the request and the template's variables."""

  def page(
    name: str, request: Request, *, error: Exception | None = None, **context: Any
  ) -> Response:
    refusal = Refusal.of(error, reason=reason) if error else None
    text = application.render(
      f"{name}.html",
      base=base,
      name=os.path.basename(os.path.abspath(base.path)),
      view=name,
      refusal=refusal,
      editors=editors,
      may_edit=editors.include(request),
      answers=has_generator or base.commit.settings.reader,
      **context,
    )
    if refusal is None:
      return HTMLResponse(text)
    return HTMLResponse(text, refusal.status, refusal.headers)

  return page


def _pages(
  base: KnowledgeBase,
  editors: Editors,
  answer_to: Callable[[Query, streams.Told | None], Answer],
  answering: Callable[..., Awaitable[Any]],
  page: Callable[..., Response],
  *,
  route: type[APIRoute],
) -> fastapi.APIRouter:
  router = fastapi.APIRouter(route_class=route)

  def ask(name: str, request: Request, asked: Search, told: streams.Told | None = None) -> Response:
    values, found, past, refused, more = base.fields, None, None, None, ""
    try:
      if asked.q and name == "answer":
        found = answer_to(asked.query(values), told)
      elif asked.q:
        query = asked.query(values, k=_SHOWN)
        found = base.search(**{**vars(query), "k": query.k + 1})
        if len(found) > query.k:
          # One more changes what age does to the others, and how probable an answer is.
          differs = query.newer is not None or found.answerable is not None
          first = dataclasses.replace(found, found=found.found[: query.k])
          found = base.search(**vars(query)) if differs else first
          if query.k < MAX_FOUND:
            k = min(query.k + _MORE, MAX_FOUND)
            more = urllib.parse.urlencode({**request.query_params, "k": k})
        past = base.past_question(found.asked) if editors.include(request) else None
    except ValueError as error:
      refused = error
    examples = [Example(text=text) for text in base.examples(_EXAMPLES)]
    shown = {"asked": asked, "found": found, "values": values, "examples": examples}
    shown["back"] = f"/?{request.url.query}"
    return page(name, request, error=refused, more=more, past=past, **shown)

  @router.get("/", include_in_schema=False)
  def search(request: Request, asked: Annotated[Search, fastapi.Query()]) -> Response:
    return ask("search", request, asked)

  @router.get("/answer", include_in_schema=False)
  async def answer(request: Request, asked: Annotated[Search, fastapi.Query()]) -> Response:
    return await answering(request, lambda told: ask("answer", request, asked, told), last="page")

  @router.post("/feedback", include_in_schema=False)
  def feedback(request: Request, form: Annotated[FeedbackForm, Form()]) -> Response:
    editors.check(request)
    form.apply(base)
    return RedirectResponse(form.back, status_code=303)

  @router.get("/questions", include_in_schema=False)
  def questions(request: Request, first: First = 0) -> Response:
    editors.check(request)
    past = base.past_questions(first=first, count=_LISTED + 1)
    asked = [(time.ctime(one.time), one) for one in past]
    return page("questions", request, first=first, count=_LISTED, questions=asked)

  @router.get("/generations", include_in_schema=False)
  def generations(request: Request) -> Response:
    settings = dataclasses.asdict(base.commit.settings)
    return page("generations", request, commit=base.commit, settings=settings)

  return router


def _document_pages(
  base: KnowledgeBase,
  editors: Editors,
  page: Callable[..., Response],
  *,
  route: type[APIRoute],
) -> fastapi.APIRouter:
  """Returns the pages of documents, on which they are changed by those who sign in there."""
  router = fastapi.APIRouter(route_class=route)

  def listed(request: Request, *, first: int = 0, **context: Any) -> Response:
    return page(
      "documents",
      request,
      first=first,
      count=_LISTED,
      documents=base.documents(first=first, count=_LISTED, characters=_BEGINNING + 1),
      changes=[(time.ctime(change.time), change) for change in base.history[:_CHANGES]],
      **{"typed": None, "note": "", **context},
    )

  @router.get("/documents", include_in_schema=False)
  def documents(request: Request, first: First = 0) -> Response:
    return listed(request, first=first)

  @router.get("/document", include_in_schema=False)
  def document(request: Request, id: Id) -> Response:
    there = document_of(base, id)
    return page("document", request, document=there, state=state(there), typed=None)

  @router.post("/documents", include_in_schema=False)
  def edit(request: Request, form: Annotated[EditForm, Form()]) -> Response:
    try:
      editors.check(request)
      form.apply(base)
    except REFUSED as error:
      there = base.document(form.id) if form.action == "update" else None
      typed = None if form.action == "delete" else form
      if there:
        shown = state(there) if isinstance(error, ChangedError) else form.state
        return page("document", request, error=error, document=there, state=shown, typed=typed)
      return listed(request, error=error, typed=typed)
    query = urllib.parse.urlencode({"id": form.id})
    after = "/documents" if form.action == "delete" else f"/document?{query}"
    return RedirectResponse(after, status_code=303)

  @router.post("/upload", include_in_schema=False)
  def upload_files(
    request: Request,
    files: Annotated[list[UploadFile], File()],
    replace: Annotated[bool, Form()] = False,
  ) -> Response:
    try:
      editors.check(request)
      changes = upload(base, files, replace=replace)
    except REFUSED as error:
      return listed(request, error=error)
    if changes.skipped:
      return listed(request, note=str(changes))
    return RedirectResponse("/documents", status_code=303)

  @router.post("/sign_in", include_in_schema=False)
  def sign_in(request: Request, token: Annotated[Text, Form()]) -> Response:
    response = RedirectResponse("/documents", status_code=303)
    try:
      editors.sign_in(response, token)
    except REFUSED as error:
      return listed(request, error=error)
    return response

  @router.post("/sign_out", include_in_schema=False)
  def sign_out() -> Response:
    response = RedirectResponse("/documents", status_code=303)
    editors.sign_out(response)
    return response

  return router


def _api(
  base: KnowledgeBase,
  editors: Editors,
  answer_to: Callable[[Query, streams.Told | None], Answer],
  answering: Callable[..., Awaitable[Any]],
  *,
  route: type[APIRoute],
) -> fastapi.APIRouter:
  router = fastapi.APIRouter(route_class=route)
  editing = [Depends(editors.check)]

  @router.get("/ready", summary="Whether the knowledge base is open")
  def ready() -> dict:
    return {"status": "ready", "documents": len(base)}

  @router.get("/api/search", summary="The best passages", openapi_extra=asking.ADDRESS)
  def search(request: Request) -> dict:
    query = asking.query(request.query_params)
    hits = base.search(**vars(query))
    found = [dataclasses.asdict(hit) for hit in hits]
    why = {"earned": dataclasses.asdict(hits.earned)} if hits.earned else {}
    asked = {"question": query.question, "asked": hits.asked}
    return {**asked, "hits": found, "answerable": hits.answerable, **why}

  @router.get(
    "/api/answer",
    summary="An answer from passages, if there is a reader or a generator",
    openapi_extra=asking.ADDRESS,
  )
  async def answered(request: Request) -> Any:
    def call(told: streams.Told | None) -> dict:
      found = answer_to(asking.query(request.query_params), told)
      own = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
      own |= {"asked": found.hits.asked, "hits": [dataclasses.asdict(hit) for hit in found.hits]}
      return {**own, "answerable": found.hits.answerable}

    return await answering(request, call, last="answer")

  @router.get("/api/documents", summary="Documents without their texts, a page at a time")
  def documents(first: First = 0, count: Count = 50) -> dict:
    found = map(record, base.documents(first=first, count=count, characters=0))
    listed = [{name: each[name] for name in each if name != "text"} for each in found]
    return {"num_documents": len(base), "documents": listed}

  @router.get("/api/document", summary="A document")
  def document(id: Id) -> dict:
    return record(document_of(base, id))

  @router.get("/api/history", summary="What was changed, newest first")
  def history() -> list[dict]:
    return [dataclasses.asdict(change) for change in base.history]

  @router.post("/api/documents", summary="Adds or replaces documents", dependencies=editing)
  def put(records: Records) -> dict:
    change = base.update if records.replace else base.add
    return dataclasses.asdict(change(records.documents))

  @router.delete(
    "/api/document", summary="Deletes a document", status_code=204, dependencies=editing
  )
  def delete(id: Id) -> None:
    base.delete(document_of(base, id).id)

  @router.get("/api/feedback", summary="Past questions, newest first", dependencies=editing)
  def past_questions(first: First = 0, count: Count = 50) -> list[dict]:
    return [past.summary for past in base.past_questions(first=first, count=count)]

  @router.post("/api/feedback", summary="Remembers what was useful", dependencies=editing)
  def feedback(given: Feedback) -> dict:
    return base.feedback(**given.model_dump()).summary

  @router.delete(
    "/api/feedback",
    summary="Forgets a past question, or what was said about a document or one passage of it",
    status_code=204,
    dependencies=editing,
  )
  def forget(question: Text, id: Id | None = None, passage: int | None = None) -> None:
    if id is not None:
      base.take_back(question, id if passage is None else (id, passage))
    elif passage is not None:
      raise ValueError(f"passage={passage} is of no document; give its id as well")
    else:
      base.forget(question)

  return router
