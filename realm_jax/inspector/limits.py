"""What a request may be: size, rate, host, origin, kind of body; anything else is refused with 4xx.

Bodies are read here, up to the limit, before anything looks at them.
"""

import collections
import dataclasses
import json
import math
import time
from collections.abc import Callable, Sequence

_CLIENTS_REMEMBERED = 4096
_READ_OF_REFUSED = 32 * 2**20  # bytes; a client that is still sending would not see the answer
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_BODY_TYPES = ("application/json", "application/x-www-form-urlencoded")
_HEADERS = (
  (
    b"content-security-policy",
    b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
  ),
  (b"x-content-type-options", b"nosniff"),
  (b"referrer-policy", b"no-referrer"),
  (b"cache-control", b"no-store"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LimitSettings:
  """What is let in.

  Attributes:
    body_bytes: of a request at most.
    requests_per_minute: of one client address on average.
    burst: requests of one address at once.
    hosts: names that the server goes by, without port; none: any.
  """

  body_bytes: int = 65_536
  requests_per_minute: int = 1200
  burst: int = 60
  hosts: Sequence[str] = ()

  def __post_init__(self):
    for name in ("body_bytes", "requests_per_minute", "burst"):
      if getattr(self, name) < 1:
        raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")


class RateLimit:
  """A bucket of tokens for each client.

  Args:
    per_minute: tokens a bucket gains.
    burst: tokens it holds.
    clock: seconds.
  """

  def __init__(self, *, per_minute: int, burst: int, clock: Callable[[], float] = time.monotonic):
    self._rate = per_minute / 60
    self._burst = burst
    self._clock = clock
    self._buckets: collections.OrderedDict[str, tuple[float, float]] = collections.OrderedDict()

  def seconds_to_wait(self, client: str) -> float:
    """Takes a token and returns 0, or returns in how many seconds there will be one."""
    now = self._clock()
    tokens, last = self._buckets.pop(client, (float(self._burst), now))
    tokens = min(self._burst, tokens + (now - last) * self._rate)
    wait = 0.0 if tokens >= 1 else (1 - tokens) / self._rate
    self._buckets[client] = (tokens - 1 if wait == 0 else tokens, now)
    if len(self._buckets) > _CLIENTS_REMEMBERED:
      self._buckets.popitem(last=False)
    return wait


class Limits:
  """ASGI middleware that enforces the settings and adds the headers of a page that is closed in.

  Args:
    app: what is protected.
    settings: what is let in.
  """

  def __init__(self, app, *, settings: LimitSettings):
    self._app = app
    self._settings = settings
    self._rate = RateLimit(per_minute=settings.requests_per_minute, burst=settings.burst)

  async def __call__(self, scope, receive, send):
    if scope["type"] != "http":
      await self._app(scope, receive, send)
      return

    async def send_with_headers(message):
      if message["type"] == "http.response.start":
        message = {**message, "headers": [*message.get("headers", []), *_HEADERS]}
      await send(message)

    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    refusal = self._refusal(scope, headers)
    limit = self._settings.body_bytes if refusal is None else 0
    body = await _read_body(receive, keep=limit)
    if refusal is None and len(body) > limit:
      refusal = self._too_large()
    if refusal is not None:
      await _refuse(send_with_headers, *refusal)
      return
    given = False

    async def receive_again():
      nonlocal given
      if given:
        return await receive()
      given = True
      return {"type": "http.request", "body": body, "more_body": False}

    await self._app(scope, receive_again, send_with_headers)

  def _refusal(self, scope, headers: dict[bytes, str]):
    settings = self._settings
    host = headers.get(b"host", "")
    if settings.hosts and _name(host) not in settings.hosts:
      # Another site's name that was made to point here would get the browser to share its session.
      return 400, f"this server goes by {', '.join(settings.hosts)}", ()
    client = (scope.get("client") or ("",))[0]
    wait = self._rate.seconds_to_wait(client)
    if wait > 0:
      after = str(math.ceil(wait)).encode()
      return 429, "too many requests; try again later", ((b"retry-after", after),)
    if scope["method"] in _SAFE_METHODS:
      return None
    origin = headers.get(b"origin")
    if origin is not None and origin.partition("://")[2] != host:
      return 403, f"requests from pages of {origin} are not taken", ()
    kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
    if scope["method"] in ("POST", "PUT", "PATCH") and kind not in _BODY_TYPES:
      return 415, f"the body must be {_BODY_TYPES[0]}", ()
    return None

  def _too_large(self):
    return 413, f"the body has more than {self._settings.body_bytes} bytes", ()


async def _read_body(receive, *, keep: int) -> bytes:
  """Returns a body, or of a longer one a little more than `keep` bytes; the rest is thrown away."""
  parts, kept, size = [], 0, 0
  while True:
    message = await receive()
    part = message.get("body", b"")
    size += len(part)
    if kept <= keep:
      parts.append(part)
      kept += len(part)
    more = message["type"] == "http.request" and message.get("more_body")
    if not more or size > _READ_OF_REFUSED:
      return b"".join(parts)


def _name(host: str) -> str:
  """Returns a host without its port; an IPv6 address keeps its brackets."""
  if host.startswith("["):
    return host.partition("]")[0] + "]"
  return host.partition(":")[0].lower()


async def _refuse(send, status: int, reason: str, headers) -> None:
  body = json.dumps({"detail": reason}).encode()
  await send(
    {
      "type": "http.response.start",
      "status": status,
      "headers": [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *headers,
      ],
    }
  )
  await send({"type": "http.response.body", "body": body})
