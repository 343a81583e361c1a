"""Ensures that only one job at a time publishes to a directory of generations.

On disk, the job holds a file lock, which the kernel releases whenever the process ends. In an
object store it holds a lease: an object that it rewrites every few seconds. A job that finds a
lease watches it: if the lease changes, its holder is alive; otherwise the job takes the lease over.
Each write is conditional on the object generation that the writer saw last, so one of two jobs
always fails. Clocks of different machines are never compared.
"""

import contextlib
import fcntl
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import tensorstore
from absl import logging

from realm_jax import object_store, processes

LOCK_FILE = "publisher.lock"


class AnotherPublisherError(RuntimeError):
  """Another job publishes to the same directory."""


@contextlib.contextmanager
def hold(
  index: str, *, renew_seconds: float = 10.0, expiry_seconds: float = 60.0
) -> Iterator[Callable[[], None]]:
  """Holds the publishing lock of a directory; the first of several processes holds it for all.

  Args:
    index: The directory of the generations, local or `gs://`, created if missing.
    renew_seconds: Time between renewals of the lease in an object store.
    expiry_seconds: Time without a renewal after which a lease is taken over.

  Yields:
    A function to call before each publication. It raises AnotherPublisherError if the lock has been
    lost.

  Raises:
    AnotherPublisherError: If another job holds the lock.
  """
  with contextlib.ExitStack() as stack:
    refusal, still_held = "", lambda: None
    try:
      if not processes.is_first():
        pass
      elif object_store.is_remote(index):
        lease = _Lease(index, renew_seconds=renew_seconds, expiry_seconds=expiry_seconds)
        still_held = stack.enter_context(lease).check
      else:
        stack.enter_context(_file_lock(index))
    except AnotherPublisherError as error:
      refusal = str(error)  # shared with all processes, which would wait for this one
    refusal = processes.share(refusal)[0]
    if refusal:
      raise AnotherPublisherError(refusal)
    yield still_held


@contextlib.contextmanager
def _file_lock(index: str) -> Iterator[None]:
  directory = object_store.absolute(index)
  directory.mkdir(parents=True, exist_ok=True)
  with open(directory / LOCK_FILE, "a+", encoding="utf-8") as file:
    file.seek(0)
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      raise AnotherPublisherError(_refusal(index, file.read())) from error
    file.truncate()
    file.write(_own_name())
    file.flush()
    yield


class _Lease(contextlib.AbstractContextManager):
  """A lease on a directory of an object store."""

  def __init__(self, index: str, *, renew_seconds: float, expiry_seconds: float):
    self._index = index
    self._renew_seconds = renew_seconds
    self._expiry_seconds = expiry_seconds
    self._objects = tensorstore.KvStore.open(f"{index.rstrip('/')}/").result()
    self._name = f"{_own_name()}, lease {uuid.uuid4().hex[:8]}"
    self._writing = threading.Lock()
    self._renewals = 0
    self._closed = threading.Event()
    self._thread = threading.Thread(target=self._renew_in_turn, name="lease", daemon=True)

  def __enter__(self) -> "_Lease":
    while not self._renewed():
      self._wait_for_the_end_of(self._holder())
    self._thread.start()
    return self

  def __exit__(self, *_):
    self._closed.set()
    self._thread.join()
    found = self._objects.read(LOCK_FILE).result()
    if found.value.decode().startswith(self._name):
      self._replaced(None, found.stamp.generation)

  def check(self) -> None:
    """Renews the lease.

    Raises:
      AnotherPublisherError: If it was taken over.
    """
    if not self._renewed():
      raise AnotherPublisherError(
        f"{self._holder()} has taken over {self._index}, because this job did not renew its lease "
        f"for {self._expiry_seconds:.0f} s; run only one index builder per directory"
      )

  def _renewed(self) -> bool:
    """Writes the lease, unless another job has it."""
    with self._writing:
      found = self._objects.read(LOCK_FILE).result()
      # The name identifies our own lease, because the reply to a successful write may get lost.
      if found.state == "value" and not found.value.decode().startswith(self._name):
        return False
      self._renewals += 1
      content = f"{self._name}, renewal {self._renewals}".encode()
      return self._replaced(content, found.stamp.generation)

  def _replaced(self, content: bytes | None, generation: bytes) -> bool:
    """Writes or removes the object if it still has this generation."""
    return bool(self._objects.write(LOCK_FILE, content, if_equal=generation).result().generation)

  def _holder(self) -> str:
    return self._objects.read(LOCK_FILE).result().value.decode().partition(", renewal")[0]

  def _wait_for_the_end_of(self, holder: str) -> None:
    """Waits until the lease is released or has expired.

    Raises:
      AnotherPublisherError: If its holder renews it.
    """
    first = self._objects.read(LOCK_FILE).result().stamp.generation
    logging.info(
      "%s may be publishing to %s; waiting up to %.0f s to see whether it is alive",
      holder,
      self._index,
      self._expiry_seconds,
    )
    deadline = time.monotonic() + self._expiry_seconds
    while time.monotonic() < deadline:
      time.sleep(self._renew_seconds / 4)
      found = self._objects.read(LOCK_FILE).result()
      if found.state == "missing":
        return
      if found.stamp.generation != first:
        raise AnotherPublisherError(_refusal(self._index, holder))
    self._replaced(None, first)

  def _renew_in_turn(self) -> None:
    while not self._closed.wait(self._renew_seconds):
      try:
        if not self._renewed():
          return  # `check` will report it
      except Exception as error:  # an outage; a later renewal may come in time
        logging.warning("cannot renew the lease on %s, will retry: %s", self._index, error)


def _own_name() -> str:
  return f"process {os.getpid()} on {platform.node()}"


def _refusal(index: str, holder: str) -> str:
  return (
    f"{holder or 'another process'} is already publishing to {index}; wait until it ends, or give "
    "--index another directory"
  )
