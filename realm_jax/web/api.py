"""The HTTP API: answers, passages and edits as JSON."""

import dataclasses
import secrets
from typing import Annotated

import fastapi
import pydantic
from fastapi import Path, Request

from realm_jax.answering.answerer import Kind
from realm_jax.web.queries import Text, Words
from realm_jax.web.refusals import NotFoundError
from realm_jax.web.service import AnsweringService

SESSION_COOKIE = "realm_session"
MAX_TEXTS = 16
_SESSION_BYTES = 24


PassageId = Annotated[int, Path(ge=0, lt=2**31)]


class Queries(pydantic.BaseModel):
  """Sentences with one `[MASK]` each to fill, or questions to answer."""

  model_config = pydantic.ConfigDict(extra="forbid")

  texts: Annotated[list[Text], pydantic.Field(min_length=1, max_length=MAX_TEXTS)]
  answers: Annotated[int, pydantic.Field(ge=1, le=50)] = 5
  target: Text | None = None
  model: Text | None = None
  rankings: bool = False


class PassageContent(pydantic.BaseModel):
  """Title and text of a passage."""

  model_config = pydantic.ConfigDict(extra="forbid")

  title: Words = ""
  text: Words


def session_of(request: Request) -> str:
  """Returns the session of a request's cookie, or a new one."""
  token = request.cookies.get(SESSION_COOKIE, "")
  usable = token.isascii() and token.replace("-", "").replace("_", "").isalnum()
  return token if usable and len(token) <= 64 else secrets.token_urlsafe(_SESSION_BYTES)


Session = Annotated[str, fastapi.Depends(session_of)]


def remember(response: fastapi.Response, session: str) -> None:
  """Sets a session's cookie, which the browser sends only to this site."""
  response.set_cookie(SESSION_COOKIE, session, httponly=True, samesite="strict")


def routes(service: AnsweringService) -> fastapi.APIRouter:
  """Returns the routes under `/api`."""
  router = fastapi.APIRouter(prefix="/api")

  @router.get("/models", summary="The models, with checkpoint step and index generation")
  def models() -> list[dict]:
    return [
      {
        "name": name,
        "asks_for": model.kind,
        "step": model.step,
        "generation": model.corpus.generation,
      }
      for name, model in service.models.items()
    ]

  def explain(kind: Kind, queries: Queries, session: str) -> dict:
    names = service.names_of_kind(kind)
    name = queries.model or next(iter(names), "")
    if name not in names:
      wanted = repr(queries.model) if queries.model else f"for a {kind}"
      raise NotFoundError(
        f"there is no model {wanted}; for a {kind} there is {', '.join(names) or 'none'}"
      )
    explanations = service.ask(
      name,
      queries.texts,
      session=session,
      answers=queries.answers,
      target=queries.target,
      with_rankings=queries.rankings,
    )
    return {"explanations": [dataclasses.asdict(one) for one in explanations]}

  @router.post("/fill_mask", summary="Fills a [MASK] and explains the answer")
  def fill_mask(queries: Queries, session: Session) -> dict:
    return explain("mask", queries, session)

  @router.post("/answer", summary="Answers a question and explains the answer")
  def answer(queries: Queries, session: Session) -> dict:
    return explain("question", queries, session)

  @router.get("/passages/{passage_id}", summary="A passage as this session sees it")
  def passage(passage_id: PassageId, session: Session) -> dict:
    return service.passage(passage_id, session=session)

  @router.post("/passages", status_code=201, summary="Adds a passage, searched at once")
  def add(content: PassageContent, session: Session, response: fastapi.Response) -> dict:
    passage_id = service.add(content.title, content.text, session=session)
    remember(response, session)
    return service.passage(passage_id, session=session)

  @router.put("/passages/{passage_id}", summary="Changes a passage and embeds it again at once")
  def change(
    passage_id: PassageId, content: PassageContent, session: Session, response: fastapi.Response
  ) -> dict:
    service.change(passage_id, content.title, content.text, session=session)
    remember(response, session)
    return service.passage(passage_id, session=session)

  @router.delete("/passages/{passage_id}", status_code=204, summary="Removes a passage")
  def remove(passage_id: PassageId, session: Session, response: fastapi.Response) -> None:
    service.remove(passage_id, session=session)
    remember(response, session)

  @router.get("/edits", summary="The edits of this session")
  def edits(session: Session) -> list[dict]:
    return [dataclasses.asdict(edit) for edit in service.edits(session=session)]

  @router.delete("/edits", status_code=204, summary="Undoes all edits")
  def undo_all(session: Session) -> None:
    service.undo_all(session=session)

  @router.delete("/edits/{passage_id}", status_code=204, summary="Undoes the edit of one passage")
  def undo(passage_id: PassageId, session: Session) -> None:
    service.undo(passage_id, session=session)

  return router
