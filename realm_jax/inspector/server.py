"""The inspector as a web application: page, API, health and readiness."""

import importlib.resources
import urllib.parse
from collections.abc import Sequence

import fastapi
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from realm_jax import __version__
from realm_jax.inspector import api, api_page, page
from realm_jax.inspector.desk import Busy, Desk, Missing, kind_of
from realm_jax.inspector.limits import Limits, LimitSettings

_STATIC = {
  "inspector.css": "text/css",
  "inspector.js": "text/javascript",
  "icon.svg": "image/svg+xml",
}


def make_app(
  desk: Desk, *, limits: LimitSettings = LimitSettings(), examples: Sequence[page.Example] = ()
) -> fastapi.FastAPI:
  """Returns the application.

  Args:
    desk: models and edits.
    limits: what requests may be.
    examples: queries to try.
  """
  app = fastapi.FastAPI(title="REALM inspector", version=__version__, docs_url=None, redoc_url=None)
  app.add_middleware(Limits, settings=limits)
  _add_refusals(app)
  app.include_router(api.routes(desk))

  @app.get("/health", summary="Whether the process answers")
  def health() -> dict:
    return {"status": "ok"}

  @app.get("/ready", summary="Whether questions can be asked; models are open and warm")
  def ready() -> dict:
    return {"status": "ready", "models": list(desk.models)}

  @app.get("/", include_in_schema=False)
  def inspector(request: Request, q: str = "", answer: str = "") -> Response:
    return _page(request, q, answer)

  @app.post("/edit", include_in_schema=False)
  async def edit(request: Request) -> Response:
    fields = _form(await request.body())
    return await fastapi.concurrency.run_in_threadpool(_edit, request, fields)

  @app.get("/docs", include_in_schema=False)
  def docs() -> Response:
    return HTMLResponse(api_page.rendered(app.openapi()))

  @app.get("/static/{name}", include_in_schema=False)
  def static(name: str) -> Response:
    if name not in _STATIC:
      raise Missing(f"there is no {name!r}")
    file = importlib.resources.files(__package__) / "static" / name
    return Response(file.read_bytes(), media_type=_STATIC[name])

  def _page(request: Request, text: str, target: str, refusal: str = "") -> Response:
    session = api.session_of(request)
    explanations = dict.fromkeys(desk.models)
    status = 422 if refusal else 200
    if text and max(len(text), len(target)) > api.MAX_TEXT:
      status, refusal = 422, f"the text has more than {api.MAX_TEXT} characters"
    elif text:
      try:
        for name in desk.names_for(text):
          (explanations[name],) = desk.ask(
            name, [text], session=session, target=target, with_rankings=True
          )
      except ValueError as error:
        explanations = dict.fromkeys(desk.models)
        status, refusal = 422, refusal or str(error)
    view = page.PageView(
      models=[
        page.ModelView(
          name=name,
          step=model.step,
          generation=model.corpus.generation,
          kind=kind_of(model),
          explanation=explanations[name],
          title=model.corpus.store.title,
          text=model.corpus.store.text,
        )
        for name, model in desk.models.items()
      ],
      num_passages=len(desk.corpus.store),
      text=text,
      target=target,
      refusal=refusal,
      edits=desk.edits(session=session),
      lasting=desk.book.lasting,
      examples=examples,
    )
    response = HTMLResponse(page.rendered(view), status_code=status)
    api.remember(response, session)
    return response

  def _edit(request: Request, fields: dict[str, str]) -> Response:
    session = api.session_of(request)
    text, target = fields.get("q", ""), fields.get("answer", "")
    try:
      _apply(desk, fields, session=session)
    except ValueError as error:
      return _page(request, text, target, refusal=str(error))
    asked = urllib.parse.urlencode({k: v for k, v in (("q", text), ("answer", target)) if v})
    response = RedirectResponse(f"/?{asked}" if asked else "/", status_code=303)
    api.remember(response, session)
    return response

  return app


def _apply(desk: Desk, fields: dict[str, str], *, session: str) -> None:
  action = fields.get("action", "")
  if action == "undo_all":
    desk.undo_all(session=session)
    return
  title, text = fields.get("title", ""), fields.get("text", "")
  if max(len(title), len(text)) > 8000:
    raise ValueError("the passage has more than 8000 characters; make several of it")
  if action == "add":
    desk.add(title, text, session=session)
    return
  number = fields.get("passage_id", "")
  if not (number.isascii() and number.isdigit() and int(number) < 2**31):
    raise Missing(f"there is no passage {number[:20]!r}")
  if action == "change":
    desk.change(int(number), title, text, session=session)
  elif action == "remove":
    desk.remove(int(number), session=session)
  elif action == "undo":
    desk.undo(int(number), session=session)
  else:
    raise ValueError(f"no edit is named {action[:20]!r}")


def _form(body: bytes) -> dict[str, str]:
  fields = urllib.parse.parse_qsl(
    body.decode("latin-1"), keep_blank_values=True, errors="replace", max_num_fields=20
  )
  return dict(fields)


def _add_refusals(app: fastapi.FastAPI) -> None:
  """Turns what was refused into short answers with the reason."""

  @app.exception_handler(RequestValidationError)
  async def malformed(request: Request, error: RequestValidationError) -> Response:
    del request
    # Not the input itself: it may be anything.
    reasons = [
      f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()
    ]
    return _refusal(422, "; ".join(reasons))

  @app.exception_handler(ValueError)
  async def unfit(request: Request, error: ValueError) -> Response:
    del request
    return _refusal(422, str(error))

  @app.exception_handler(Missing)
  async def missing(request: Request, error: Missing) -> Response:
    del request
    return _refusal(404, error.args[0])

  @app.exception_handler(Busy)
  async def busy(request: Request, error: Busy) -> Response:
    del request
    return _refusal(429, str(error), {"retry-after": "1"})


def _refusal(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
  # A reason may quote what was sent, and that may be no Unicode.
  reason = reason.encode(errors="replace").decode()
  return JSONResponse({"detail": reason}, status_code=status, headers=headers)
