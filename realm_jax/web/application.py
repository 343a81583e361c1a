"""What all pages and APIs share: limits, errors, health, templates, and the edit token."""

import asyncio
import dataclasses
import errno
import functools
import hmac
import importlib.resources
import inspect
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any

import anyio
import fastapi
import jinja2
import pydantic
from absl import logging
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.routing import APIRoute
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException

from realm_jax import __version__
from realm_jax.devices.directory_lock import DirectoryInUseError
from realm_jax.foundations import text_files
from realm_jax.knowledge_base.language_model import GeneratorError
from realm_jax.knowledge_base.store.hits import likely
from realm_jax.text.terminal import direction
from realm_jax.text.wordpieces import MASK
from realm_jax.web.listening import SLOWEST, LimitSettings

MAX_TEXT = 2000
_COOKIE = "realm_editor"
_MIN_TOKEN = 16
_MAX_DISCARDED_BYTES = 32 * 2**20
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_HEADERS = (
  (
    b"content-security-policy",
    b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
  ),
  (b"x-content-type-options", b"nosniff"),
  (b"referrer-policy", b"same-origin"),  # without any, forms are sent with a null origin
  (b"cache-control", b"no-store"),
)
_STATIC = {
  "inspector.css": "text/css",
  "inspector.js": "text/javascript",
  "icon.svg": "image/svg+xml",
}
# Neither spaces nor brackets, quotation marks, invisible characters, or marks of Chinese sentences.
_ADDRESS = re.compile(
  r"(?<![A-Za-z0-9])https?://(?=[\w\[])[^\s<>\"`{}|\\^\u00ab\u00bb\u2000-\u206f\u3000-\u303f\uff00-\uff20]+",
  re.I,
)
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class NotFoundError(LookupError):
  """The named passage, document, model or file does not exist."""


class ForbiddenError(Exception):
  """The client may not change anything."""


class BusyError(Exception):
  """As many requests are being answered as are allowed at once."""


_STATUS = {
  RequestValidationError: 422,
  GeneratorError: 502,
  ValueError: 422,
  ForbiddenError: 403,
  NotFoundError: 404,
  DirectoryInUseError: 409,
  BusyError: 503,
  OSError: 503,  # of the disk, if it is not full
}
REFUSED = tuple(_STATUS)
_LATER = (409, 503, 507)
_FULL = (errno.ENOSPC, errno.EDQUOT)


def _encodable(text: str) -> str:
  try:
    text.encode()
  except UnicodeEncodeError:
    # JSON can contain half of a surrogate pair, UTF-8 cannot.
    raise ValueError("the text is not valid Unicode") from None
  return text


UNICODE = pydantic.AfterValidator(_encodable)
Text = Annotated[str, pydantic.StringConstraints(max_length=MAX_TEXT), UNICODE]
Id = Annotated[str, UNICODE]  # as long as a body or an address can be


class Turns:
  """Lets some calls run at once, in threads of their own, and a few more wait for them.

  Raises:
    BusyError: From a call, if as many wait already, or if the server stops before it has ended.
  """

  def __init__(self, running: int, *, admitted: int | None = None):
    self._admitted, self._taken = admitted or running, 0
    self._running = running
    self._limiter: anyio.CapacityLimiter | None = None  # which needs an event loop

  def taken_by(self, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a coroutine function that calls a function once it has a turn."""

    @functools.wraps(function)
    async def call(*args, **kwargs):
      if self._taken >= self._admitted:
        raise BusyError(f"{self._admitted} requests are being answered; try again")
      self._limiter = self._limiter or anyio.CapacityLimiter(self._running)
      self._taken += 1
      try:
        call = functools.partial(function, *args, **kwargs)
        return await anyio.to_thread.run_sync(call, limiter=self._limiter)
      except asyncio.CancelledError:
        raise BusyError("the server is stopping; try again") from None
      finally:
        self._taken -= 1

    return call


def route_class(turns: Callable[[str, set[str]], Turns]) -> type[APIRoute]:
  """Returns routes whose calls take the turns of their path and methods.

  Those of an API refuse a parameter that they do not know, or that is there twice: a search without
  its condition, and a deletion without its id, would be of more than is meant.
  """

  class Route(APIRoute):
    def __init__(self, path: str, endpoint: Callable[..., Any], **settings):
      if not inspect.iscoroutinefunction(endpoint):
        endpoint = turns(path, {*(settings.get("methods") or ())}).taken_by(endpoint)
      super().__init__(path, endpoint, **settings)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
      handle = super().get_route_handler()
      documented = (self.openapi_extra or {}).get("parameters", ())
      known = [
        *(one.alias for one in self.dependant.query_params),
        *(p["name"] for p in documented),
      ]

      async def handle_json_of_ours(request: Request) -> Response:
        names = [name for name, _ in request.query_params.multi_items()]
        for name in names if self.path.startswith("/api/") else ():
          if name not in known or names.count(name) > 1:
            wrong = (
              "is there twice" if name in known else f"is none of {', '.join(known) or 'none'}"
            )
            raise HTTPException(422, f"parameter {name!r:.60} {wrong}")
        return await handle(_Request(request.scope, request.receive))

      return handle_json_of_ours

  return Route


def new_app(
  title: str,
  *routers: fastapi.APIRouter,
  example: str,
  limits: LimitSettings,
  reason: Callable[[Exception], str] = str,
  body_bytes: Callable[[Request], int] | None = None,
) -> fastapi.FastAPI:
  """Returns an application with the pages and the API of some routers.

  Args:
    example: A command that uses the API, for its documentation.
    reason: What clients are told of an error.
    body_bytes: Maximum size of the body of a request, if it is not that of all.
  """
  app = fastapi.FastAPI(
    title=title,
    version=__version__,
    docs_url=None,
    redoc_url=None,
    redirect_slashes=False,  # to http://, also from https:// before a proxy
  )
  app.add_middleware(
    TrustedHostMiddleware, allowed_hosts=list(limits.hosts) or ["*"], www_redirect=False
  )
  app.add_middleware(_Guard, body_bytes=body_bytes or (lambda request: limits.body_bytes))
  for kind in (*_STATUS, HTTPException):
    app.add_exception_handler(kind, functools.partial(_refuse, reason=reason))
  for router in routers:
    app.include_router(router)

  @app.get("/health", summary="Whether the process responds")
  async def health() -> dict:
    return {"status": "ok"}

  @app.get("/docs", include_in_schema=False)
  async def docs() -> Response:
    return HTMLResponse(render("api.html", schema=app.openapi(), example=example))

  @app.get("/static/{name}", include_in_schema=False)
  async def static(name: str) -> Response:
    if name not in _STATIC:
      raise NotFoundError(f"there is no {name!r}")
    file = importlib.resources.files("realm_jax.web") / "static" / name
    return Response(file.read_bytes(), media_type=_STATIC[name])

  return app


@dataclasses.dataclass(frozen=True)
class Refusal:
  """Why a request was refused, and the status that says so."""

  status: int
  detail: str
  headers: Mapping[str, str] | None = None

  @classmethod
  def of(cls, error: Exception, *, reason: Callable[[Exception], str] = str) -> "Refusal":
    """Converts an error that is told to clients, as `reason` words it."""
    if isinstance(error, HTTPException):
      return cls(error.status_code, error.detail, error.headers)
    status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
    detail = reason(error)
    if isinstance(error, (RequestValidationError, pydantic.ValidationError)):
      # Without the input itself, which may be anything.
      detail = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
    elif isinstance(error, OSError):
      logging.error("%s: %s", type(error).__name__, error)
      status = 507 if error.errno in _FULL else status
      if error.errno and not isinstance(error, (ConnectionError, TimeoutError)):
        detail = f"cannot read or write: {os.strerror(error.errno)}"  # without the file's name
    # A reason may quote the request, which need not be valid Unicode.
    detail = detail.encode(errors="replace").decode()
    return cls(status, detail, {"retry-after": "1"} if status in _LATER else None)


async def _refuse(request: Request, error: Exception, *, reason: Callable) -> Response:
  """Converts an error to a page for a browser that wants one, and to JSON for programs."""
  refusal = Refusal.of(error, reason=reason)
  is_page = "text/html" in request.headers.get("accept", "")
  if is_page and not request.url.path.startswith("/api/"):
    phrase = HTTPException(refusal.status).detail
    page = render("error.html", refusal=refusal, phrase=phrase)
    return HTMLResponse(page, refusal.status, refusal.headers)
  return JSONResponse({"detail": refusal.detail}, refusal.status, refusal.headers)


class _Request(Request):
  """A request whose JSON has each name once, and a line for what is wrong with it."""

  async def json(self) -> Any:
    try:
      return text_files.parse_json(await self.body())
    except ValueError as error:
      raise HTTPException(422, f"the body is no JSON: {error}") from error


class Drained:
  """ASGI middleware that reads the rest of a body, and discards it, before a response begins.

  A client that is still sending a body would find the connection closed.
  """

  def __init__(self, app):
    self._app = app

  async def __call__(self, scope, receive, send):
    if scope["type"] != "http":
      return await self._app(scope, receive, send)
    size, more = 0, True

    async def receive_part():
      nonlocal size, more
      message = await receive()
      size += len(message.get("body", b""))
      more = message.get("more_body", False)
      return message

    async def send_after_the_body(message):
      if message["type"] == "http.response.start":
        while more and size < _MAX_DISCARDED_BYTES:
          await receive_part()
      await send(message)

    await self._app(scope, receive_part, send_after_the_body)


class _Guard:
  """ASGI middleware that limits bodies, refuses other sites' pages, and isolates our own."""

  def __init__(self, app, *, body_bytes: Callable[[Request], int]):
    self._app = app
    self._body_bytes = body_bytes

  async def __call__(self, scope, receive, send):
    if scope["type"] != "http":
      return await self._app(scope, receive, send)
    size, more, most = 0, True, self._body_bytes(Request(scope))
    if is_head := scope["method"] == "HEAD":
      scope = {**scope, "method": "GET"}

    async def receive_limited():
      nonlocal size, more
      try:
        message = await asyncio.wait_for(receive(), SLOWEST if more else None)
      except TimeoutError:
        late = f"nothing of the body came in {SLOWEST} s"
        raise HTTPException(408, late, {"connection": "close"}) from None
      except asyncio.CancelledError:
        if not more:
          raise
        stopping = "the server is stopping; try again"
        raise HTTPException(503, stopping, {"connection": "close"}) from None
      size, more = size + len(message.get("body", b"")), message.get("more_body", False)
      if size > most:
        raise HTTPException(413, f"the body has more than {most:,} bytes")
      return message

    async def send_isolated(message):
      if message["type"] == "http.response.start":
        message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
      elif is_head:
        message = {**message, "body": b""}
      await send(message)

    request, app = Request(scope), self._app
    origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
    scheme, _, site = origin.lower().partition("://")
    own = {host.lower(), host.lower().removesuffix(_DEFAULT_PORTS.get(scheme, ""))}
    if origin and request.method not in _SAFE_METHODS and not (site and site in own):
      app = JSONResponse({"detail": f"requests from pages of {origin} are refused"}, 403)
    await app(scope, receive_limited, send_isolated)


class Editors:
  """Decides who may change what is served: programs that send a token, and browsers that sent it.

  Raises:
    ValueError: If the token is short enough to be guessed.
  """

  def __init__(self, token: str | None):
    if token is not None and len(token) < _MIN_TOKEN:
      raise ValueError(
        f"edit_token has {len(token)} characters; give at least {_MIN_TOKEN}, such as "
        f"{secrets.token_urlsafe(_MIN_TOKEN)}"
      )
    if token is not None and not token.isascii():
      raise ValueError("edit_token has characters that no header can carry; use ASCII ones")
    self._token = token
    self._cookie = secrets.token_urlsafe(24)  # so that the token itself is in no browser

  @property
  def exist(self) -> bool:
    """Whether anybody may change anything."""
    return self._token is not None

  def include(self, request: Request) -> bool:
    """Returns whether the client may change something."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return self.exist and (
      (kind.lower() == "bearer" and self._is_token(token.strip()))
      or _equal(request.cookies.get(_COOKIE, ""), self._cookie)
    )

  def check(self, request: Request) -> None:
    """Raises ForbiddenError unless the client may change something."""
    if not self.exist:
      raise ForbiddenError("documents cannot be changed here; start the server with an edit token")
    if not self.include(request):
      raise ForbiddenError(
        "only with the edit token; sign in on the page of documents, or send it as "
        "`Authorization: Bearer TOKEN`"
      )

  def sign_in(self, response: Response, token: str) -> None:
    """Lets the browser that gets the response change something."""
    if not self._is_token(token):
      raise ForbiddenError("this is not the edit token")
    response.set_cookie(_COOKIE, self._cookie, httponly=True, samesite="strict")

  def sign_out(self, response: Response) -> None:
    """Lets the browser that gets the response change nothing any more."""
    response.delete_cookie(_COOKIE, httponly=True, samesite="strict")

  def _is_token(self, token: str) -> bool:
    return self._token is not None and _equal(token, self._token)


def _equal(first: str, second: str) -> bool:
  """Compares in a time that does not depend on how much is equal."""
  return hmac.compare_digest(first.encode(errors="replace"), second.encode())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
  """A query to try; `answer` is the correct answer, empty if unknown."""

  text: str
  answer: str = ""


def render(template: str, **context: object) -> str:
  """Returns the page that a template in `templates/` makes of its variables."""
  return environment().get_template(template).render(context)


@functools.cache
def environment() -> jinja2.Environment:
  """Returns the environment of all templates."""
  made = jinja2.Environment(
    loader=jinja2.PackageLoader("realm_jax.web"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  made.filters.update(
    direction=lambda text: direction(text.replace(MASK, "")),
    highlighted=highlighted,
    json=functools.partial(json.dumps, indent=2),
    likely=likely,
    linked=linked,
    shown=lambda value: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False),
    probability=probability,
    signed=signed,
  )
  return made


def probability(value: float) -> str:
  """Formats a probability: 0.911, 4.8 × 10⁻⁷."""
  if value == 0 or not math.isfinite(value):
    return "0"
  if value >= 0.0005:
    return f"{value:.3f}"
  mantissa, exponent = f"{value:.1e}".split("e")
  return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}"


def signed(value: float, *, digits: int = 2) -> str:
  """Formats a number with its sign."""
  return f"{value:+.{digits}f}".replace("-", "−")


def linked(text: str, spans: Sequence[tuple[int, int]] = ()) -> Markup:
  """Makes links of addresses on the web in a text, and marks character spans in it."""
  parts, last = [], 0
  for found in _ADDRESS.finditer(text):
    address = found[0].rstrip("?!.,:*_~'&;")  # which rather end a sentence
    if address.endswith(")") and address.count(")") > address.count("("):
      address = address[:-1]
    end = found.start() + len(address)
    parts.append(_highlighted_part(text, last, found.start(), spans))
    link = Markup('<a href="{}" rel="noopener noreferrer nofollow">{}</a>')
    parts.append(link.format(address, _highlighted_part(text, found.start(), end, spans)))
    last = end
  return Markup("").join([*parts, _highlighted_part(text, last, len(text), spans)])


def _highlighted_part(text: str, start: int, end: int, spans: Sequence[tuple[int, int]]) -> Markup:
  inside = [(max(a, start) - start, min(b, end) - start) for a, b in spans if a < end and b > start]
  return highlighted(text[start:end], inside)


def highlighted(text: str, spans: Sequence[tuple[int, int]]) -> Markup:
  """Marks character spans in a text, except those that overlap an earlier one."""
  parts, last = [], 0
  for start, limit in sorted(spans):
    if start >= last:
      parts += [escape(text[last:start]), Markup("<mark>{}</mark>").format(text[start:limit])]
      last = limit
  return Markup("").join([*parts, text[last:]])
