"""Requests over HTTP whose whole response has to come until a deadline."""

import contextlib
import functools
import io
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPException as HTTPException
from http.client import HTTPResponse
from typing import Any, cast
from urllib.error import HTTPError as HTTPError

_TICK = 0.2  # seconds


class _Reads(io.RawIOBase):
  """Reads a socket until a deadline, which a server that sends a byte now and then cannot move.

  `watch` is called all the while; what it raises ends the reading.
  """

  def __init__(self, source: Any, deadline: float, watch: Callable[[], None]):
    self._source, self._deadline, self._watch = source, deadline, watch
    self._file = source.makefile("rb", buffering=0)  # which keeps the socket open

  def readable(self) -> bool:
    return True

  def readinto(self, buffer) -> int | None:
    while (left := self._deadline - time.monotonic()) > 0:
      self._watch()
      self._source.settimeout(min(left, _TICK))
      with contextlib.suppress(TimeoutError):
        return self._source.recv_into(buffer)
    raise TimeoutError

  def close(self) -> None:
    self._file.close()
    super().close()


class Response(HTTPResponse):
  """Is read until a deadline, from the status line to the trailers."""

  def __init__(self, source: Any, *args, bounds: tuple[float, Callable[[], None]], **kwargs):
    super().__init__(source, *args, **kwargs)
    self.fp.close()
    self.fp = io.BufferedReader(_Reads(source, *bounds))


class Deadline(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
  """Opens addresses whose whole response has to come until a deadline; see `_Reads`."""

  def __init__(self, deadline: float, watch: Callable[[], None]):
    super().__init__()
    self._deadline = deadline
    self._response = functools.partial(Response, bounds=(deadline, watch))

  def open_address(
    self, url: str, data: bytes | None, headers: dict[str, str], *, direct: bool
  ) -> Any:
    """Sends a request and returns its response.

    Args:
      direct: Whether no proxy of the environment is used.

    Raises:
      HTTPError, HTTPException, OSError: If there is none.
    """
    proxies = urllib.request.ProxyHandler({} if direct else None)
    opener = urllib.request.build_opener(proxies, _NoRedirects, self)
    left = max(self._deadline - time.monotonic(), 1e-3)
    return opener.open(urllib.request.Request(url, data, headers), timeout=left)

  def do_open(self, http_class, req, **http_conn_args):
    """Opens with a response that has the deadline."""

    def connection(*args, **kwargs):
      made: Any = http_class(*args, **kwargs)
      made.response_class = self._response
      return made

    return super().do_open(cast(Any, connection), req, **http_conn_args)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
  def redirect_request(self, *args, **kwargs) -> None:
    """Follows no redirect, so that key and passages go to no other host."""
