"""The inspector: a page and an HTTP API on what a model answers, from what, and after edits."""

import dataclasses
import secrets
import urllib.parse
from collections.abc import Sequence
from typing import Annotated, Literal

import fastapi
import pydantic
from fastapi import Form, Path, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from realm_jax.answering.explanation import Explanation, GenerationRanking
from realm_jax.text.wordpieces import MASK
from realm_jax.web import application
from realm_jax.web.application import MAX_TEXT, UNICODE, Example, NotFoundError, Text, new_app
from realm_jax.web.inspector.service import AnsweringService
from realm_jax.web.listening import LimitSettings

_COOKIE = "realm_session"
_SESSION_BYTES = 24
_MAX_TEXTS = 16
_MAX_PASSAGE = 8000  # characters
_SHOWN_RANKS, _MAX_FOLLOWED = 8, 7
_EXAMPLE = """\
curl -s http://127.0.0.1:8082/api/fill_mask -H 'content-type: application/json' \\
  -d '{"texts": ["The [MASK] is the currency of the United Kingdom."]}'"""

PassageId = Annotated[int, Path(ge=0, lt=2**31)]
Passage = Annotated[str, pydantic.StringConstraints(max_length=_MAX_PASSAGE), UNICODE]


class Queries(pydantic.BaseModel):
  """Sentences with one `[MASK]` each to fill, or questions to answer."""

  model_config = pydantic.ConfigDict(extra="forbid")

  texts: Annotated[list[Text], pydantic.Field(min_length=1, max_length=_MAX_TEXTS)]
  answers: Annotated[int, pydantic.Field(ge=1, le=50)] = 5
  target: Text | None = None
  rankings: bool = False


class PassageContent(pydantic.BaseModel):
  """Title and text of a passage."""

  model_config = pydantic.ConfigDict(extra="forbid")

  title: Passage = ""
  text: Passage


class EditForm(pydantic.BaseModel):
  """An edit as sent by the page's forms, with the query to answer again."""

  action: Literal["add", "change", "remove", "undo", "undo_all"]
  passage_id: Annotated[int, pydantic.Field(ge=0, lt=2**31)] | None = None
  title: str = ""
  text: str = ""
  q: str = ""
  answer: str = ""

  def apply(self, service: AnsweringService, *, session: str) -> None:
    """Applies the edit."""
    if max(len(self.title), len(self.text)) > _MAX_PASSAGE:
      raise ValueError(f"the passage has more than {_MAX_PASSAGE} characters; split it")
    if self.action == "undo_all":
      service.undo_all(session=session)
    elif self.action == "add":
      service.add(self.title, self.text, session=session)
    elif self.passage_id is None:
      raise NotFoundError(f"the form names no passage to {self.action}")
    elif self.action == "change":
      service.change(self.passage_id, self.title, self.text, session=session)
    elif self.action == "remove":
      service.remove(self.passage_id, session=session)
    else:
      service.undo(self.passage_id, session=session)


def _session(request: Request) -> str:
  """Returns the session of a request's cookie, or a new one."""
  token = request.cookies.get(_COOKIE, "")
  usable = token.isascii() and token.replace("-", "").replace("_", "").isalnum()
  return token if usable and len(token) <= 64 else secrets.token_urlsafe(_SESSION_BYTES)


Session = Annotated[str, fastapi.Depends(_session)]


def _remember(response: fastapi.Response, session: str) -> None:
  """Sets a session's cookie, which the browser sends only to this site."""
  response.set_cookie(_COOKIE, session, httponly=True, samesite="strict")


def make_app(
  service: AnsweringService,
  *,
  limits: LimitSettings = LimitSettings(),
  examples: Sequence[Example] = (),
) -> fastapi.FastAPI:
  """Returns the application that serves the page and the API."""
  router = _routes(service, examples)
  return new_app("REALM inspector", router, example=_EXAMPLE, limits=limits)


def _routes(service: AnsweringService, examples: Sequence[Example]) -> fastapi.APIRouter:
  router = fastapi.APIRouter()

  def page(session: str, text: str, target: str, refusal: str = "") -> Response:
    try:
      explanation = _explanation(service, session, text, target)
    except ValueError as error:
      explanation, refusal = None, refusal or str(error)
    view = {
      "model": service.model,
      "explanation": explanation,
      "rank_histories": _rank_histories(explanation.rankings if explanation else ()),
      "num_passages": len(service.corpus.store),
      "text": text,
      "target": target,
      "refusal": refusal,
      "edits": service.edits(session=session),
      "examples": examples,
    }
    shown = application.render("inspector.html", view=view, mask_token=MASK)
    response = HTMLResponse(shown, status_code=422 if refusal else 200)
    _remember(response, session)
    return response

  @router.get("/", include_in_schema=False)
  def inspector(session: Session, q: str = "", answer: str = "") -> Response:
    return page(session, q, answer)

  @router.post("/edit", include_in_schema=False)
  def edit(session: Session, form: Annotated[EditForm, Form()]) -> Response:
    try:
      form.apply(service, session=session)
    except ValueError as error:
      return page(session, form.q, form.answer, refusal=str(error))
    query = urllib.parse.urlencode({k: v for k, v in (("q", form.q), ("answer", form.answer)) if v})
    response = RedirectResponse(f"/?{query}" if query else "/", status_code=303)
    _remember(response, session)
    return response

  @router.get("/ready", summary="Whether the model is open and compiled")
  def ready() -> dict:
    return {"status": "ready"}

  @router.get("/api/model", summary="What the model takes, its checkpoint step, and its generation")
  def model() -> dict:
    one = service.model
    return {"asks_for": one.kind, "step": one.step, "generation": one.corpus.generation}

  @router.post("/api/fill_mask", summary="Fills a [MASK] and explains the answer")
  @router.post("/api/answer", summary="Answers a question and explains the answer")
  def explain(queries: Queries, session: Session) -> dict:
    explanations = service.ask(
      queries.texts,
      session=session,
      answers=queries.answers,
      target=queries.target or None,
      with_rankings=queries.rankings,
    )
    return {"explanations": [dataclasses.asdict(one) for one in explanations]}

  @router.get("/api/passages/{passage_id}", summary="A passage as this session sees it")
  def passage(passage_id: PassageId, session: Session) -> dict:
    return service.passage(passage_id, session=session)

  @router.post("/api/passages", status_code=201, summary="Adds a passage, searched at once")
  def add(content: PassageContent, session: Session, response: fastapi.Response) -> dict:
    passage_id = service.add(content.title, content.text, session=session)
    _remember(response, session)
    return service.passage(passage_id, session=session)

  @router.put("/api/passages/{passage_id}", summary="Changes a passage and embeds it again at once")
  def change(
    passage_id: PassageId, content: PassageContent, session: Session, response: fastapi.Response
  ) -> dict:
    service.change(passage_id, content.title, content.text, session=session)
    _remember(response, session)
    return service.passage(passage_id, session=session)

  @router.delete("/api/passages/{passage_id}", status_code=204, summary="Removes a passage")
  def remove(passage_id: PassageId, session: Session, response: fastapi.Response) -> None:
    service.remove(passage_id, session=session)
    _remember(response, session)

  @router.get("/api/edits", summary="The edits of this session")
  def edits(session: Session) -> list[dict]:
    return service.edits(session=session)

  @router.delete("/api/edits", status_code=204, summary="Undoes all edits")
  def undo_all(session: Session) -> None:
    service.undo_all(session=session)

  @router.delete("/api/edits/{passage_id}", status_code=204, summary="Undoes one edit")
  def undo(passage_id: PassageId, session: Session) -> None:
    service.undo(passage_id, session=session)

  return router


def _rank_histories(rankings: Sequence[GenerationRanking]) -> list[dict]:
  """Returns the ranks of passages in each generation, from 1; none of a single generation.

  It follows the newest generation's best passages, and the best one of each older generation.
  """
  if len(rankings) < 2:
    return []
  followed = [i for i in rankings[-1].passage_ids if i >= 0][:5]
  followed += [i for ranking in rankings[:-1] for i in ranking.passage_ids[:1]]
  shown = [ranking.passage_ids[:_SHOWN_RANKS] for ranking in rankings]
  return [
    {"passage_id": i, "ranks": [ids.index(i) + 1 if i in ids else None for ids in shown]}
    for i in [*dict.fromkeys(followed)][:_MAX_FOLLOWED]
  ]


def _explanation(
  service: AnsweringService, session: str, text: str, target: str
) -> Explanation | None:
  if not text:
    return None
  if max(len(text), len(target)) > MAX_TEXT:
    raise ValueError(f"the text has more than {MAX_TEXT} characters; shorten it")
  (explanation,) = service.ask([text], session=session, target=target or None, with_rankings=True)
  return explanation
