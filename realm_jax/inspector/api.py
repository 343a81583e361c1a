"""The HTTP API: questions, passages and edits as JSON."""

import dataclasses
import secrets
from typing import Annotated

import fastapi
import pydantic
from fastapi import Path, Request

from realm_jax.inspector.desk import Desk, Kind, Missing, kind_of

SESSION_COOKIE = "realm_session"
MAX_TEXTS = 16
MAX_TEXT = 2000
_SESSION_BYTES = 24


def _encodable(text: str) -> str:
  try:
    text.encode()
  except UnicodeEncodeError:
    # JSON can hold half of a surrogate pair, UTF-8 cannot.
    raise ValueError("the text is no Unicode") from None
  return text


Text = Annotated[
  str, pydantic.StringConstraints(max_length=MAX_TEXT), pydantic.AfterValidator(_encodable)
]
Words = Annotated[
  str, pydantic.StringConstraints(max_length=8000), pydantic.AfterValidator(_encodable)
]
PassageId = Annotated[int, Path(ge=0, lt=2**31)]


class Asked(pydantic.BaseModel):
  """What is asked: sentences with one `[MASK]` each to fill, or questions to answer."""

  model_config = pydantic.ConfigDict(extra="forbid")

  texts: Annotated[list[Text], pydantic.Field(min_length=1, max_length=MAX_TEXTS)]
  answers: Annotated[int, pydantic.Field(ge=1, le=50)] = 5
  target: Text | None = None
  model: Text | None = None
  rankings: bool = False


class PassageContent(pydantic.BaseModel):
  """What a passage says."""

  model_config = pydantic.ConfigDict(extra="forbid")

  title: Words = ""
  text: Words


def session_of(request: Request) -> str:
  """Returns the session that a request names, or a new one."""
  token = request.cookies.get(SESSION_COOKIE, "")
  usable = token.isascii() and token.replace("-", "").replace("_", "").isalnum()
  return token if usable and len(token) <= 64 else secrets.token_urlsafe(_SESSION_BYTES)


def remember(response: fastapi.Response, session: str) -> None:
  """Has the browser name the session next time, to this site alone."""
  response.set_cookie(SESSION_COOKIE, session, httponly=True, samesite="strict")


def routes(desk: Desk) -> fastapi.APIRouter:
  """Returns the routes under `/api`."""
  router = fastapi.APIRouter(prefix="/api")

  @router.get("/models", summary="The models, and what each was opened with")
  def models() -> list[dict]:
    return [
      {
        "name": name,
        "asks_for": kind_of(model),
        "step": model.step,
        "generation": model.corpus.generation,
      }
      for name, model in desk.models.items()
    ]

  def explained(kind: Kind, asked: Asked, request: Request) -> dict:
    names = [name for name, model in desk.models.items() if kind_of(model) == kind]
    name = asked.model or next(iter(names), "")
    if name not in names:
      wanted = repr(asked.model) if asked.model else f"for a {kind}"
      raise Missing(
        f"there is no model {wanted}; for a {kind} there is {', '.join(names) or 'none'}"
      )
    explanations = desk.ask(
      name,
      asked.texts,
      session=session_of(request),
      answers=asked.answers,
      target=asked.target,
      with_rankings=asked.rankings,
    )
    return {"explanations": [dataclasses.asdict(one) for one in explanations]}

  @router.post("/fill_mask", summary="What fills a [MASK], and the passages it was read from")
  def fill_mask(asked: Asked, request: Request) -> dict:
    return explained("mask", asked, request)

  @router.post("/answer", summary="What answers a question, and the passages it was read from")
  def answer(asked: Asked, request: Request) -> dict:
    return explained("question", asked, request)

  @router.get("/passages/{passage_id}", summary="A passage as this session sees it")
  def passage(passage_id: PassageId, request: Request) -> dict:
    return desk.passage(passage_id, session=session_of(request))

  @router.post("/passages", status_code=201, summary="Adds a passage; it is searched at once")
  def add(content: PassageContent, request: Request, response: fastapi.Response) -> dict:
    session = session_of(request)
    passage_id = desk.add(content.title, content.text, session=session)
    remember(response, session)
    return desk.passage(passage_id, session=session)

  @router.put("/passages/{passage_id}", summary="Changes a passage; it is embedded anew at once")
  def change(
    passage_id: PassageId, content: PassageContent, request: Request, response: fastapi.Response
  ) -> dict:
    session = session_of(request)
    desk.change(passage_id, content.title, content.text, session=session)
    remember(response, session)
    return desk.passage(passage_id, session=session)

  @router.delete("/passages/{passage_id}", status_code=204, summary="Removes a passage")
  def remove(passage_id: PassageId, request: Request, response: fastapi.Response) -> None:
    session = session_of(request)
    desk.remove(passage_id, session=session)
    remember(response, session)

  @router.get("/edits", summary="What this session has edited")
  def edits(request: Request) -> list[dict]:
    return [dataclasses.asdict(edit) for edit in desk.edits(session=session_of(request))]

  @router.delete("/edits", status_code=204, summary="Undoes all edits")
  def undo_all(request: Request) -> None:
    desk.undo_all(session=session_of(request))

  @router.delete("/edits/{passage_id}", status_code=204, summary="Undoes the edit of a passage")
  def undo(passage_id: PassageId, request: Request) -> None:
    desk.undo(passage_id, session=session_of(request))

  return router
