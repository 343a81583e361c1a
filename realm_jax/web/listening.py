"""Serves an application at a port of this machine until told to stop."""

import contextlib
import dataclasses
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from absl import logging

from realm_jax.foundations import choices, extras

if TYPE_CHECKING:
  import asyncio

_STOPPING = 25  # seconds for requests in flight; what starts containers gives them 30
SLOWEST = 30  # seconds in which a client has to send a request, or something more of its body


@dataclasses.dataclass(frozen=True, kw_only=True)
class LimitSettings(choices.Checked):
  """Limits on the requests that are accepted.

  Attributes:
    body_bytes: Maximum size of a body.
    answers: Maximum number of answers that are written at once, each of which may take long.
    requests: Maximum number of other requests that are being answered or wait for it.
    hosts: Names of this server, without port; empty allows any. Otherwise another site could point
      its own name here, and the browser would share its session (DNS rebinding).
  """

  body_bytes: choices.Count = 65_536
  answers: choices.Count = 16
  requests: choices.Count = 128
  hosts: Sequence[str] = ()

  def with_local_names(self, host: str) -> "LimitSettings":
    """Returns limits that let a server on a loopback address answer to local names alone."""
    try:
      local = ipaddress.ip_address(host).is_loopback
    except ValueError:
      local = host == "localhost"
    names = ("127.0.0.1", "localhost", "[::1]", _in_address(host)) if local else ()
    return dataclasses.replace(self, hosts=self.hosts or names)


@dataclasses.dataclass(frozen=True)
class Listener:
  """A port that is taken, although nothing listens yet, and how it is written."""

  _socket: socket.socket
  address: str

  def serve(self, app: Callable, *, note: str = "open %s in a browser") -> None:
    """Serves until SIGTERM or SIGINT; in another thread than the first, until the process ends."""
    import uvicorn

    config = uvicorn.Config(
      app,
      http=_protocol(),
      log_level="warning",
      server_header=False,
      timeout_keep_alive=SLOWEST,
      timeout_graceful_shutdown=_STOPPING,
    )
    server = uvicorn.Server(config)
    # In a thread of its own, because a notebook runs an event loop in this one.
    thread = threading.Thread(target=server.run, kwargs={"sockets": [self._socket]}, daemon=True)
    before = {}
    if threading.current_thread() is threading.main_thread():
      # The library's, which ends event streams, too, and ends at once if it is interrupted again.
      before = {n: signal.signal(n, server.handle_exit) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
      self._socket.listen()
      thread.start()
      logging.info(note, self.address)
      print(self.address, flush=True)
      thread.join()
    finally:
      for number, handler in before.items():
        signal.signal(number, handler)


def _protocol() -> "type[asyncio.Protocol]":
  """Returns the library's protocol with a limit on the time that a client takes for a request.

  The library's own ends with the first byte.
  """
  from uvicorn.protocols.http.h11_impl import H11Protocol

  class Protocol(H11Protocol):
    _waiting: "asyncio.TimerHandle | None" = None

    def connection_made(self, transport):
      super().connection_made(transport)
      self._wait()

    def on_response_complete(self):
      self._wait()
      super().on_response_complete()  # and begins the next one if it came already

    def connection_lost(self, exc):
      super().connection_lost(exc)
      if self._waiting:
        self._waiting.cancel()

    def _wait(self):
      if self._waiting:
        self._waiting.cancel()
      self._waiting = self.loop.call_later(SLOWEST, self._close_without_another_than, self.cycle)

    def _close_without_another_than(self, cycle):
      if self.cycle is cycle:
        self.transport.close()

  return Protocol


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[Listener]:
  """Takes a port, before what takes seconds is opened."""
  try:
    import fastapi
    import python_multipart
    import uvicorn

    del fastapi, python_multipart, uvicorn
  except ImportError as error:
    raise ValueError(
      f"{error}; serving needs the extra: {extras.how_to_install('serve')}"
    ) from error
  if not 0 <= port < 65536:
    raise ValueError(f"port={port}; use 0 to 65535")
  with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as bound:
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
      bound.bind((host, port))
    except OSError as error:
      raise ValueError(
        f"cannot listen at {host}, port {port}: {error.strerror}; choose another --port or --host"
      ) from error
    yield Listener(bound, f"http://{_in_address(host)}:{bound.getsockname()[1]}")


def _in_address(host: str) -> str:
  return f"[{host}]" if ":" in host else host
