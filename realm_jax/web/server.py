"""The inspector as a web application: page, API, health and readiness."""

import urllib.parse
from collections.abc import Sequence
from typing import Annotated, Literal

import fastapi
import pydantic
from fastapi import Form
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from realm_jax.answering.explanation import Explanation
from realm_jax.web import api, page
from realm_jax.web.application import new_app
from realm_jax.web.limit_settings import LimitSettings
from realm_jax.web.queries import MAX_TEXT, Example
from realm_jax.web.refusals import NotFoundError
from realm_jax.web.service import AnsweringService

_MAX_PASSAGE = 8000
_EXAMPLE = """\
curl -s http://127.0.0.1:8080/api/fill_mask -H 'content-type: application/json' \\
  -d '{"texts": ["The [MASK] is the currency of the United Kingdom."]}'"""


class EditForm(pydantic.BaseModel):
  """An edit as sent by the page's forms, with the query to answer again."""

  action: Literal["add", "change", "remove", "undo", "undo_all"]
  passage_id: Annotated[int, pydantic.Field(ge=0, lt=2**31)] | None = None
  title: str = ""
  text: str = ""
  q: str = ""
  answer: str = ""

  def apply(self, service: AnsweringService, *, session: str) -> None:
    """Applies the edit.

    Raises:
      NotFoundError: If there is no such passage.
      ValueError: If the passage is empty or too long.
    """
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


def make_app(
  service: AnsweringService,
  *,
  limits: LimitSettings = LimitSettings(),
  examples: Sequence[Example] = (),
) -> fastapi.FastAPI:
  """Returns the application that serves the page and the API."""
  app = new_app("REALM inspector", example=_EXAMPLE, limits=limits)
  app.include_router(api.routes(service))

  @app.get("/ready", summary="Whether the models are open and compiled")
  def ready() -> dict:
    return {"status": "ready", "models": list(service.models)}

  @app.get("/", include_in_schema=False)
  def inspector(session: api.Session, q: str = "", answer: str = "") -> Response:
    return _page(service, examples, session, q, answer)

  @app.post("/edit", include_in_schema=False)
  def edit(session: api.Session, form: Annotated[EditForm, Form()]) -> Response:
    try:
      form.apply(service, session=session)
    except ValueError as error:
      return _page(service, examples, session, form.q, form.answer, refusal=str(error))
    query = urllib.parse.urlencode({k: v for k, v in (("q", form.q), ("answer", form.answer)) if v})
    response = RedirectResponse(f"/?{query}" if query else "/", status_code=303)
    api.remember(response, session)
    return response

  return app


def _page(
  service: AnsweringService,
  examples: Sequence[Example],
  session: str,
  text: str,
  target: str,
  refusal: str = "",
) -> Response:
  try:
    explanations = _explanations(service, session, text, target)
  except ValueError as error:
    explanations, refusal = {}, refusal or str(error)
  view = page.PageView(
    models=[
      page.ModelView(name=name, answerer=model, explanation=explanations.get(name))
      for name, model in service.models.items()
    ],
    num_passages=len(service.corpus.store),
    text=text,
    target=target,
    refusal=refusal,
    edits=service.edits(session=session),
    examples=examples,
  )
  response = HTMLResponse(page.rendered(view), status_code=422 if refusal else 200)
  api.remember(response, session)
  return response


def _explanations(
  service: AnsweringService, session: str, text: str, target: str
) -> dict[str, Explanation]:
  if not text:
    return {}
  if max(len(text), len(target)) > MAX_TEXT:
    raise ValueError(f"the text has more than {MAX_TEXT} characters; shorten it")
  return {
    name: service.ask(name, [text], session=session, target=target, with_rankings=True)[0]
    for name in service.names_for(text)
  }
