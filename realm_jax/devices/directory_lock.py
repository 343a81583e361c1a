"""Ensures that only one job at a time works in a directory: a run's, or that of an index.

On disk, the job holds a lock on the directory itself, which the kernel releases whenever the
process ends; a file in it says who holds it, and may be deleted. In an object store the file is a
lease: an object that its holder rewrites every few seconds. A job that finds a lease watches it: if
the lease changes, its holder is alive; otherwise the job takes the lease over. Each write is
conditional on the object generation that the writer saw last, so one of two jobs always fails.
Clocks of different machines are never compared.
"""

import contextlib
import contextvars
import os
import platform
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from absl import logging

from realm_jax.foundations import atomic_files, object_store, plain_files
from realm_jax.foundations.output_kinds import DirectoryKind

if TYPE_CHECKING:
  from tensorstore import KvStore

LOCK_FILE = "directory.lock"
_NAME_LENGTH = 400  # characters of a holder, of what may be any file
WORKDIR = DirectoryKind(
  name="the workdir of a job",
  files=(
    *("*_config.gin", LOCK_FILE, "checkpoints/", "best/", "logs/", "plugins/"),
    *("metrics.jsonl", "samples.jsonl", "swaps.jsonl", "events.out.tfevents.*"),
  ),
  marks=("*_config.gin", LOCK_FILE, "checkpoints/*/_CHECKPOINT_METADATA"),
  shared=True,
)

# The directory of the job that runs, and its check.
_held_by_job: contextvars.ContextVar[tuple[str, Callable[[], None]] | None] = (
  contextvars.ContextVar("_held_by_job", default=None)
)


class DirectoryInUseError(RuntimeError):
  """Another job works in the same directory."""


@contextlib.contextmanager
def hold(
  directory: str, *, kind: DirectoryKind, renew_seconds: float = 10.0, expiry_seconds: float = 60.0
) -> Iterator[Callable[[], None]]:
  """Holds the lock of a directory; the first of several processes holds it for all.

  Args:
    directory: Local or `gs://`; created if missing.
    kind: What the directory has to be unless it is empty.
    renew_seconds: Time between renewals of the lease in an object store.
    expiry_seconds: Time without a renewal after which a lease is taken over.

  Yields:
    A function to call before each publication. It raises DirectoryInUseError if the lock has been
    lost.

  Raises:
    DirectoryInUseError: If another job holds the lock.
    ValueError: If the directory is of another kind.
  """
  held = _held_by_job.get()
  if held is not None and held[0] == _identity(directory):
    yield held[1]
    return
  kind.check(directory)
  if object_store.is_remote(directory):
    lock: contextlib.AbstractContextManager[Callable[[], None]] = _Lease(
      directory, renew_seconds=renew_seconds, expiry_seconds=expiry_seconds
    )
  else:
    lock = _kernel_lock(directory)
  with contextlib.ExitStack() as stack:
    # A job without JAX is alone, and does not wait for its import.
    # While another thread imports it, it has no attributes yet.
    distributed = getattr(sys.modules.get("jax"), "distributed", None)
    if distributed is None or not distributed.is_initialized():
      yield stack.enter_context(lock)
      return
    from realm_jax.devices import processes

    refusal, still_held = "", lambda: None
    if processes.is_first():
      try:
        still_held = stack.enter_context(lock)
      except DirectoryInUseError as error:
        refusal = str(error)  # shared with all processes, which would wait for this one
    if refusal := processes.share(refusal)[0]:
      raise DirectoryInUseError(refusal)
    yield still_held


@contextlib.contextmanager
def hold_for_job(workdir: str, *, kind: DirectoryKind = WORKDIR) -> Iterator[None]:
  """Holds the lock of a job's workdir; a training that the job runs in it shares the lock."""
  with hold(workdir, kind=kind) as still_held:
    token = _held_by_job.set((_identity(workdir), still_held))
    try:
      yield
    finally:
      _held_by_job.reset(token)


def _identity(directory: str) -> str:
  return os.fspath(object_store.absolute(directory)).rstrip("/")


@contextlib.contextmanager
def _kernel_lock(path: str) -> Iterator[Callable[[], None]]:
  directory = object_store.absolute(path)
  directory.mkdir(parents=True, exist_ok=True)
  file = directory / LOCK_FILE
  with contextlib.ExitStack() as stack:
    try:
      try:
        stack.enter_context(atomic_files.locked(directory))
      except BlockingIOError:
        raise
      except OSError:  # NFS locks files, but no directories
        plain_files.open_plain(file, "ab").close()
        stack.enter_context(atomic_files.locked(file))
    except BlockingIOError as error:
      holder = "another process"
      with contextlib.suppress(OSError, ValueError), plain_files.open_plain(file, "r") as opened:
        holder = opened.read(_NAME_LENGTH)
      raise DirectoryInUseError(_refusal(path, holder)) from error
    with plain_files.open_plain(file, "w") as opened:
      opened.write(_own_name())
    held = os.stat(directory)

    def check() -> None:
      """Checks that no other directory has taken the place of the one that is locked."""
      with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(held, os.stat(directory)):
          return
      raise DirectoryInUseError(
        f"{path} was moved or replaced meanwhile, so nothing more is written; run it again"
      )

    yield check


class _Lease(contextlib.AbstractContextManager[Callable[[], None]]):
  """A lease on a directory of an object store."""

  def __init__(self, directory: str, *, renew_seconds: float, expiry_seconds: float):
    self._directory = directory
    self._renew_seconds = renew_seconds
    self._expiry_seconds = expiry_seconds
    import tensorstore  # late, because a lock on this machine needs no object store

    self._objects = tensorstore.KvStore.open(f"{directory.rstrip('/')}/").result()
    self._name = f"{_own_name()}, lease {uuid.uuid4().hex[:8]}"
    self._writing = threading.Lock()
    self._closed = threading.Event()
    self._thread = threading.Thread(target=self._renew_in_turn, name="lease", daemon=True)

  def __enter__(self) -> Callable[[], None]:
    while not self._renewed():
      self._wait_for_the_end_of(self._read())
    self._thread.start()
    return self._check

  def __exit__(self, *_):
    self._closed.set()
    self._thread.join()
    found = self._read()
    if found.value.decode() == self._name:
      self._replaced(found, None)

  def _check(self) -> None:
    """Renews the lease."""
    if not self._renewed():
      raise DirectoryInUseError(
        f"{self._read().value.decode()} has taken over {self._directory}, because this job did not "
        f"renew its lease for {self._expiry_seconds:.0f} s; run only one job in a directory"
      )

  def _read(self) -> "KvStore.ReadResult":
    return self._objects.read(LOCK_FILE).result()

  def _renewed(self) -> bool:
    """Writes the lease, unless another job has it."""
    with self._writing:
      found = self._read()
      # The name identifies our own lease, because the reply to a successful write may get lost.
      if found.state == "value" and found.value.decode() != self._name:
        return False
      return self._replaced(found, self._name.encode())

  def _replaced(self, found: "KvStore.ReadResult", content: bytes | None) -> bool:
    """Writes or removes the lease if it is still the one that was found."""
    written = self._objects.write(LOCK_FILE, content, if_equal=found.stamp.generation)
    return bool(written.result().generation)

  def _wait_for_the_end_of(self, lease: "KvStore.ReadResult") -> None:
    """Waits until a lease is released or has expired."""
    holder = lease.value.decode()
    logging.info(
      "%s may be working in %s; waiting up to %.0f s to see whether it is alive",
      holder,
      self._directory,
      self._expiry_seconds,
    )
    deadline = time.monotonic() + self._expiry_seconds
    while time.monotonic() < deadline:
      time.sleep(self._renew_seconds / 4)
      found = self._read()
      if found.state == "missing":
        return
      if found.stamp.generation != lease.stamp.generation:
        raise DirectoryInUseError(_refusal(self._directory, holder))
    self._replaced(lease, None)

  def _renew_in_turn(self) -> None:
    while not self._closed.wait(self._renew_seconds):
      try:
        if not self._renewed():
          return  # `_check` will report it
      except Exception as error:  # an outage; a later renewal may come in time
        logging.warning("cannot renew the lease on %s, will retry: %s", self._directory, error)


def _own_name() -> str:
  return f"process {os.getpid()} on {platform.node()}"


def _refusal(directory: str, holder: str) -> str:
  return (
    f"{holder or 'another process'} is already working in {directory}; wait until it ends, or give "
    "another directory"
  )
