"""Rejects requests by rate, origin, host, and body type and size with a 4xx response."""

import collections
import math
import time
from collections.abc import Callable

import fastapi
from fastapi import Request
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import JSONResponse
from starlette.middleware.body_limit import RequestBodyLimitMiddleware

from realm_jax.web.limit_settings import LimitSettings

_CLIENTS_REMEMBERED = 4096
_MIN_BURST = 60  # a page takes several requests
_MAX_DISCARDED_BYTES = 32 * 2**20
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_BODY_TYPES = ("application/json", "application/x-www-form-urlencoded")
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


def add_limits(app: fastapi.FastAPI, settings: LimitSettings) -> None:
  """Adds the middleware that enforces the settings."""
  # Counts the bytes of bodies that do not declare their size.
  app.add_middleware(RequestBodyLimitMiddleware, max_body_size=settings.body_bytes)
  app.add_middleware(_Admission, settings=settings)
  app.add_middleware(
    TrustedHostMiddleware, allowed_hosts=list(settings.hosts) or ["*"], www_redirect=False
  )
  app.add_middleware(_Responses)


class RateLimit:
  """A token bucket of size `burst` for each client, which fills at a rate per minute."""

  def __init__(self, *, per_minute: int, burst: int, clock: Callable[[], float] = time.monotonic):
    self._rate = per_minute / 60
    self._burst = burst
    self._clock = clock
    self._buckets: collections.OrderedDict[str, tuple[float, float]] = collections.OrderedDict()

  def seconds_to_wait(self, client: str) -> float:
    """Takes a token and returns 0, or returns the seconds until one is available."""
    now = self._clock()
    tokens, last = self._buckets.pop(client, (float(self._burst), now))
    tokens = min(self._burst, tokens + (now - last) * self._rate)
    wait = 0.0 if tokens >= 1 else (1 - tokens) / self._rate
    self._buckets[client] = (tokens - 1 if wait == 0 else tokens, now)
    if len(self._buckets) > _CLIENTS_REMEMBERED:
      self._buckets.popitem(last=False)
    return wait


class _Admission:
  """ASGI middleware that rejects requests by rate, origin, and declared body type and size."""

  def __init__(self, app, *, settings: LimitSettings):
    self._app = app
    self._settings = settings
    rate = settings.requests_per_minute
    self._rate = RateLimit(per_minute=rate, burst=max(_MIN_BURST, rate // 20))

  async def __call__(self, scope, receive, send):
    refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
    await (refusal or self._app)(scope, receive, send)

  def _refusal(self, request: Request) -> JSONResponse | None:
    wait = self._rate.seconds_to_wait(request.client.host if request.client else "")
    if wait > 0:
      after = {"retry-after": str(math.ceil(wait))}
      return JSONResponse({"detail": "too many requests; try again later"}, 429, after)
    if request.method in _SAFE_METHODS:
      return None
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
      return JSONResponse({"detail": f"requests from pages of {origin} are refused"}, 403)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method in ("POST", "PUT", "PATCH") and kind not in _BODY_TYPES:
      return JSONResponse({"detail": f"the body must be {_BODY_TYPES[0]}, not {kind!r}"}, 415)
    limit = self._settings.body_bytes
    if int(request.headers.get("content-length", 0)) > limit:
      return JSONResponse({"detail": f"the body has more than {limit:,} bytes"}, 413)
    return None


class _Responses:
  """ASGI middleware that isolates pages by headers and lets rejected clients see their response.

  A client that is still sending a body would find the connection closed, so the rest of the body is
  read and discarded before the response begins.
  """

  def __init__(self, app):
    self._app = app

  async def __call__(self, scope, receive, send):
    more = scope["type"] == "http"

    async def receive_noting_the_end():
      nonlocal more
      message = await receive()
      more = message.get("more_body", False)
      return message

    async def send_after_the_body(message):
      if message["type"] == "http.response.start":
        discarded = 0
        while more and discarded < _MAX_DISCARDED_BYTES:
          discarded += len((await receive_noting_the_end()).get("body", b""))
        message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
      await send(message)

    await self._app(scope, receive_noting_the_end, send_after_the_body)
