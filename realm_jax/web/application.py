"""What all pages and APIs share: limits, refusals, health, documentation and static files."""

import importlib.resources

import fastapi
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response

from realm_jax import __version__
from realm_jax.devices.directory_lock import DirectoryInUseError
from realm_jax.knowledge_base.chat_server import GeneratorError
from realm_jax.web import rendering
from realm_jax.web.limit_settings import LimitSettings
from realm_jax.web.limits import add_limits
from realm_jax.web.refusals import ForbiddenError, NotFoundError, OverloadedError

_STATIC = {
  "inspector.css": "text/css",
  "inspector.js": "text/javascript",
  "icon.svg": "image/svg+xml",
}
_REFUSALS = {
  RequestValidationError: 422,
  GeneratorError: 502,
  ValueError: 422,
  ForbiddenError: 403,
  NotFoundError: 404,
  DirectoryInUseError: 409,
  OverloadedError: 429,
}


def new_app(title: str, *, example: str, limits: LimitSettings) -> fastapi.FastAPI:
  """Returns an application without pages and API.

  Args:
    example: A command that uses the API, for its documentation.
  """
  app = fastapi.FastAPI(title=title, version=__version__, docs_url=None, redoc_url=None)
  add_limits(app, limits)
  for kind in _REFUSALS:
    app.add_exception_handler(kind, _refuse)

  @app.get("/health", summary="Whether the process responds")
  def health() -> dict:
    return {"status": "ok"}

  @app.get("/docs", include_in_schema=False)
  def docs() -> Response:
    return HTMLResponse(rendering.render("api.html", schema=app.openapi(), example=example))

  @app.get("/static/{name}", include_in_schema=False)
  def static(name: str) -> Response:
    if name not in _STATIC:
      raise NotFoundError(f"there is no {name!r}")
    file = importlib.resources.files("realm_jax.web") / "static" / name
    return Response(file.read_bytes(), media_type=_STATIC[name])

  return app


async def _refuse(request: Request, error: Exception) -> Response:
  """Converts an error to a short response with the reason."""
  del request
  status = next(code for kind, code in _REFUSALS.items() if isinstance(error, kind))
  reason = str(error)
  if isinstance(error, RequestValidationError):
    # Without the input itself, which may be anything.
    reason = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
  # A reason may quote the request, which need not be valid Unicode.
  detail = reason.encode(errors="replace").decode()
  again = {"retry-after": "1"} if status in (409, 429) else None
  return JSONResponse({"detail": detail}, status, again)
