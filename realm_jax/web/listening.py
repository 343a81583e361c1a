"""Serves an application at a port of this machine until told to stop."""

import contextlib
import dataclasses
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator

from absl import logging

from realm_jax.web.limit_settings import LimitSettings


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
      log_level="warning",
      server_header=False,
      timeout_keep_alive=30,
      timeout_graceful_shutdown=10,
    )
    running = uvicorn.Server(config)

    def stop(*_) -> None:
      running.should_exit = True

    # In a thread of its own, because a notebook runs an event loop in this one.
    thread = threading.Thread(target=running.run, kwargs={"sockets": [self._socket]}, daemon=True)
    before = {}
    if threading.current_thread() is threading.main_thread():
      before = {n: signal.signal(n, stop) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
      self._socket.listen()
      thread.start()
      logging.info(note, self.address)
      print(self.address, flush=True)
      thread.join()
    finally:
      for number, handler in before.items():
        signal.signal(number, handler)


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[Listener]:
  """Takes a port, before what takes seconds is opened.

  Args:
    host: Address to listen on; 0.0.0.0 is every address of this machine.
    port: Port to listen on; 0 chooses a free one.

  Raises:
    ValueError: If the port is taken, or FastAPI or uvicorn is not installed.
  """
  try:
    import fastapi
    import uvicorn

    del fastapi, uvicorn
  except ImportError as error:
    raise ValueError(
      f"{error}; serving needs the extra: pip install -e '.[serve]' in the checkout"
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
    name = f"[{host}]" if ":" in host else host
    yield Listener(bound, f"http://{name}:{bound.getsockname()[1]}")


def with_local_names(limits: LimitSettings, host: str) -> LimitSettings:
  """Returns limits that let a server on a loopback address answer to local names alone."""
  try:
    local = ipaddress.ip_address(host).is_loopback
  except ValueError:
    local = host == "localhost"
  own = f"[{host}]" if ":" in host else host
  names = ("127.0.0.1", "localhost", "[::1]", own) if local else ()
  return dataclasses.replace(limits, hosts=limits.hosts or names)
