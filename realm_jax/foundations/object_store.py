"""Paths in an object store, `gs://BUCKET/...`, used like local ones.

Writing an object is atomic, but an object cannot be appended to, renamed or mapped into memory, and
a directory is only a common prefix of names. Therefore

- a directory is completed by `complete.json`, which lists its files with sizes and SHA-256; a
  directory without it counts as missing, and unlisted files are ignored;
- files that must be on a disk are copied to a local cache and verified against that list;
- files that grow are written locally and copied at checkpoints (`MirroredLogs`).

Checkpoints and generations have Orbax's own commit marker. See `docs/object_store.md`.
"""

import concurrent.futures
import contextlib
import fnmatch
import hashlib
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from absl import logging

from realm_jax.foundations import system

if TYPE_CHECKING:
  from etils.epath import Path

COMPLETE_FILE = "complete.json"
_BLOCK = 8 << 20
_RANGE = 32 << 20  # bytes of a file that one request reads
_STREAMS = 16  # requests at a time
_FILE_NAME = re.compile(r"(?!/)(?:(?!\.{1,2}(?:/|$))[^/\0]+(?:/|$))+(?<!/)")
_MOST_BYTES = 255 - len(".unfinished")  # of a name on a disk
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ADDRESS = re.compile(r"(gs|s3|az)://[^/]+(/.*)?", re.DOTALL)

# Use gcsfs whether TensorFlow is installed or not, for the same behaviour on every machine.
os.environ.setdefault("EPATH_USE_TF", "false")
# A cached listing would never show what other processes write. fsspec reads this where it is first
# imported, which only addresses need: it takes a twentieth of the time of a command.
for _protocol in ("GS", "GCS"):
  os.environ.setdefault(f"FSSPEC_{_protocol}", '{"use_listings_cache": false}')
if "fsspec" in sys.modules:
  sys.modules["fsspec"].config.set_conf_env(sys.modules["fsspec"].config.conf)


def __getattr__(name: str) -> Any:
  """Imports `Path` at its first use: it takes a tenth of the time of a search, which needs none."""
  if name != "Path":
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  from etils import epath

  globals()[name] = epath.Path
  return epath.Path


def _path(path: str | os.PathLike) -> "Path":
  return __getattr__("Path")(path)


def is_remote(path: str | os.PathLike) -> bool:
  """Returns whether a path is an address in an object store."""
  return "://" in os.fspath(path)


def absolute(path: str | os.PathLike) -> "Path":
  """Returns a path that does not depend on the current directory; keeps an address as it is.

  Raises:
    ValueError: If it is an address, but of no object store that is known, or the library for
      reading it is not installed.
  """
  if not is_remote(path):
    return _path(path).expanduser().resolve()
  if not _ADDRESS.fullmatch(os.fspath(path)):
    raise ValueError(f"{os.fspath(path)} is no address in an object store, such as gs://bucket/kb")
  import fsspec

  try:
    fsspec.get_filesystem_class(os.fspath(path).partition("://")[0])
  except (ImportError, ValueError) as error:
    raise ValueError(
      f"{os.fspath(path)} cannot be opened ({error}); install realm_jax with the extra `gcs`, "
      "which reads gs://"
    ) from error
  return _path(os.fspath(path))


def check_local(**paths: str | None) -> None:
  """Checks that paths are local."""
  for name, path in paths.items():
    if path is not None and is_remote(path):
      raise ValueError(
        f"{name}={path} is in an object store; use a local directory, and copy it with "
        "`realm launch/upload.py` when it is finished"
      )


def upload(directory: str | os.PathLike, target: str) -> int:
  """Copies a directory to the object store, its listing last; returns the number of files."""
  remote = absolute(target)
  listing = remote / COMPLETE_FILE
  listing.unlink(missing_ok=True)  # from here on the old directory counts as missing
  records = {}
  for file in sorted(path for path in pathlib.Path(directory).rglob("*") if path.is_file()):
    name = file.relative_to(directory).as_posix()
    if name == COMPLETE_FILE:
      continue  # belongs to the object store that the directory was copied from
    records[name] = _copy(file, remote / name)
  listing.write_text(json.dumps({"files": records}, indent=1, sort_keys=True))
  return len(records)


def publish(
  directory: str,
  names: Sequence[str],
  target: str,
  *,
  ours: re.Pattern[str],
  keep_before: bool = True,
) -> int:
  """Copies files that never change, except for those that are there, then their listing.

  Files of such a directory that are not listed any more are removed. Of two publications at the
  same time the later listing counts: the other one then removes nothing more, and what it has
  removed is copied again.

  Args:
    ours: Matches the names of all files that were ever listed; others stay.
    keep_before: Whether what the listing before names stays as well, so that whoever has begun to
      read can finish.

  Returns:
    The number of files that were copied.

  Raises:
    ValueError: If one is there with another content; nothing is copied.
  """
  remote, local, before = absolute(target), pathlib.Path(directory), listed(target)
  records = {name: _record(local / name) for name in names if name in before}
  if other := [name for name, record in records.items() if record != before[name]]:
    raise ValueError(
      f"{remote} has another {other[0]} than {directory}; give another address, or delete that one"
    )
  copied, objects = set(), _objects(remote)

  def copy_missing() -> None:
    for name in names:
      if name not in records or objects.get(name) != records[name]["size"]:
        records[name] = _copy(local / name, remote / name)
        copied.add(name)

  copy_missing()
  content = json.dumps({"files": {name: records[name] for name in names}}, indent=1).encode()
  (remote / COMPLETE_FILE).write_bytes(content)
  objects = _objects(remote)
  copy_missing()
  kept = {*names, *(before if keep_before else ())}
  for name in filter(ours.fullmatch, objects.keys() - kept):
    if _listing_of(remote) != content:
      break
    (remote / name).unlink(missing_ok=True)
  return len(copied)


def mirror(directory: str, folder: str) -> None:
  """Makes a local folder have the files that `publish` listed last, copied in the order of names.

  Raises:
    FileNotFoundError: If there is no listing.
    ValueError: If a file differs from the listed one.
  """
  remote, listing = absolute(directory), pathlib.Path(folder, COMPLETE_FILE)
  os.makedirs(folder, exist_ok=True)
  with _locked(folder):
    here, before = b"", {}
    with contextlib.suppress(FileNotFoundError, ValueError):  # no copy was finished
      here = listing.read_bytes()
      before = _read_listing(here, remote)
    while (content := _listing_of(remote)) != here:
      records = _read_listing(content, remote)
      try:
        for name, record in records.items():
          file = pathlib.Path(folder, name)
          # One of an unfinished copy may be of another listing.
          if before.get(name) != record and file.exists() and _record(file) != record:
            file.unlink()
          _fetch(remote / name, os.fspath(file), record)
      except FileNotFoundError:
        if _listing_of(remote) == content:
          raise
        continue  # removed, because it has been published again
      for file in [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]:
        if file.relative_to(folder).as_posix() not in records:
          file.unlink()
      unfinished = listing.with_name(f"{COMPLETE_FILE}.unfinished")
      unfinished.write_bytes(content)
      os.replace(unfinished, listing)
      here, before = content, records


def listed(directory: str) -> dict[str, dict]:
  """Returns size and SHA-256 of each file that is listed, by name; none if there is no list."""
  remote = absolute(directory)
  try:
    return _read_listing((remote / COMPLETE_FILE).read_bytes(), remote)
  except FileNotFoundError:
    return {}


def local_copy(directory: str | os.PathLike, *patterns: str) -> str:
  """Returns a local directory with the files whose names match one of the patterns.

  Of a local directory, returns the absolute path, so that no change of the current directory
  matters. Copies files from an object store to `$REALM_CACHE`
  (`~/.cache/realm_jax` by default) unless they are there already.

  Raises:
    FileNotFoundError: If the directory is missing or incomplete.
    ValueError: If a file differs from the listed one.
  """
  if not is_remote(directory):
    return os.fspath(absolute(directory))
  remote = absolute(directory)
  content = _listing_of(remote)
  records = _read_listing(content, remote)
  name = hashlib.sha256(os.fspath(remote).encode() + content).hexdigest()[:24]
  folder = os.path.join(cache_directory(), name)
  os.makedirs(folder, exist_ok=True)
  with _locked(folder):
    for name, record in records.items():
      if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
        _fetch(remote / name, os.path.join(folder, name), record)
  return folder


def list_files(pattern: str) -> list[str]:
  """Expands a glob pattern of addresses; a directory means all objects below it."""
  import fsspec

  absolute(pattern)
  scheme = pattern.partition("://")[0]
  store = fsspec.filesystem(scheme)
  if any(character in pattern for character in "*?["):
    found = store.glob(pattern, detail=True)
  else:
    found = {pattern: store.info(pattern)}
  files = set()
  for path, record in found.items():
    files.update(store.find(path) if record["type"] == "directory" else [path])
  names = sorted(store.unstrip_protocol(path) for path in files)
  if not names:
    raise FileNotFoundError(f"no object matches {pattern!r}")
  return names


class MirroredLogs:
  """A local directory for the logs of a run, mirrored to the object store; first process only.

  Args:
    target: Directory in the object store; its JSON Lines are continued.
    seconds: Seconds between copies; `flush` copies at once.
  """

  def __init__(self, target: str, *, seconds: float = 30.0):
    self._target = absolute(target)
    self._sent: dict[str, tuple[int, int]] = {}
    self._lock = threading.Lock()
    self._closed = threading.Event()
    self.directory = tempfile.mkdtemp(prefix="realm_logs_")
    for file in self._target.glob("*.jsonl"):
      pathlib.Path(self.directory, file.name).write_bytes(file.read_bytes())
    self._thread = threading.Thread(target=self._copy_regularly, args=(seconds,), daemon=True)
    self._thread.start()

  def flush(self) -> None:
    """Copies every file that changed since its last copy."""
    with self._lock:
      for file in sorted(pathlib.Path(self.directory).iterdir()):
        state = file.stat().st_size, file.stat().st_mtime_ns
        if self._sent.get(file.name) != state:
          (self._target / file.name).write_bytes(file.read_bytes())
          self._sent[file.name] = state

  def close(self) -> None:
    """Copies the remaining changes and removes the local directory."""
    self._closed.set()
    self._thread.join()
    self.flush()
    shutil.rmtree(self.directory)

  def _copy_regularly(self, seconds: float) -> None:
    while not self._closed.wait(seconds):
      try:
        self.flush()
      except Exception as error:  # an outage; the next copy includes the same files
        logging.warning("could not copy metrics to %s, will retry: %s", self._target, error)


def _copy(source: pathlib.Path, target: "Path") -> dict:
  """Copies a file to the store; returns its size and SHA-256."""
  digest, size = hashlib.sha256(), 0
  with source.open("rb") as read, target.open("wb") as written:
    while block := read.read(_BLOCK):
      digest.update(block)
      size += len(block)
      written.write(block)
  return {"size": size, "sha256": digest.hexdigest()}


def _record(path: pathlib.Path) -> dict:
  with path.open("rb") as file:
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"size": file.tell(), "sha256": digest}


def _fetch(source: "Path", target: str, record: dict) -> None:
  """Copies a file from the store unless it is cached; only a verified copy gets its name."""
  if os.path.exists(target) and os.path.getsize(target) == record["size"]:
    return
  os.makedirs(os.path.dirname(target), exist_ok=True)
  unfinished = f"{target}.unfinished"
  found = _copy_in_ranges(source, unfinished)
  if found != record:
    os.unlink(unfinished)
    raise ValueError(
      f"{source} is not the file that {COMPLETE_FILE} lists ({found['size']} bytes with SHA-256 "
      f"{found['sha256'][:12]} instead of {record['size']} with {record['sha256'][:12]}); if it is "
      "being replaced try again, otherwise make it again"
    )
  os.replace(unfinished, target)


def _copy_in_ranges(source: "Path", target: str) -> dict:
  """Copies a file from the store, many ranges at a time; returns its size and SHA-256."""
  size = source.stat().length
  with open(target, "w+b") as written:

    def copy(file: io.BufferedIOBase, first: int, length: int) -> None:
      os.pwrite(written.fileno(), file.read(length), first)

    _for_each_range(source, size, copy)
    os.fsync(written.fileno())
    return {"size": size, "sha256": hashlib.file_digest(written, "sha256").hexdigest()}


def read_into(buffer: memoryview, source: "Path") -> None:
  """Fills a buffer of bytes from a file of this size, many ranges at a time."""

  def read(file: io.BufferedIOBase, first: int, length: int) -> None:
    file.readinto(buffer[first : first + length])

  _for_each_range(source, len(buffer), read)


def _for_each_range(
  source: "Path", size: int, use: Callable[[io.BufferedIOBase, int, int], None]
) -> None:
  """Calls `use(file, first, length)` for each range, with a file that is open at `first`."""

  def use_range(first: int) -> None:
    with source.open("rb") as file:
      file.seek(first)
      use(cast(io.BufferedIOBase, file), first, min(_RANGE, size - first))

  with concurrent.futures.ThreadPoolExecutor(_STREAMS) as pool:
    list(pool.map(use_range, range(0, size, _RANGE)))


def _objects(remote: "Path") -> dict[str, int]:
  """Returns the sizes of all objects below an address by their relative names."""
  import fsspec

  address = os.fspath(remote)
  store = fsspec.filesystem(address.partition("://")[0])
  root = store._strip_protocol(address).rstrip("/") + "/"
  found = store.find(root, detail=True)
  return {path.removeprefix(root): record["size"] for path, record in found.items()}


def _listing_of(remote: "Path") -> bytes:
  try:
    return (remote / COMPLETE_FILE).read_bytes()
  except FileNotFoundError as error:
    raise FileNotFoundError(
      f"{remote} is missing or incomplete: it has no {COMPLETE_FILE}, which is written last; make "
      "it again, or copy a local directory with `realm launch/upload.py`"
    ) from error


def _read_listing(content: bytes, directory: "Path") -> dict[str, dict]:
  try:
    records = json.loads(content)["files"]
    for name, record in records.items():
      parts = [*itertools.accumulate(name.split("/"), "{}/{}".format)]
      if not _FILE_NAME.fullmatch(name) or name == COMPLETE_FILE or name.endswith(".unfinished"):
        raise ValueError(f"{name!r:.60} is not the name of a file below it")
      if any(len(os.fsencode(part)) > _MOST_BYTES for part in name.split("/")):
        raise ValueError(f"{name!r:.60} is a name of more than {_MOST_BYTES} bytes")
      if not records.keys().isdisjoint(parts[:-1]):
        raise ValueError(f"{name!r:.60} is below another file")
      if record.keys() != {"size", "sha256"} or type(record["size"]) is not int:
        raise ValueError(f"{name!r:.60} has no size and SHA-256")
      if record["size"] < 0 or not _SHA256.fullmatch(record["sha256"]):
        raise ValueError(f"{name!r:.60} has no size and SHA-256")
  except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
    raise ValueError(
      f"{directory / COMPLETE_FILE} is not a list of files ({error}); make the directory again"
    ) from error
  return records


def cache_directory() -> str:
  """Returns the folder that this machine keeps between runs.

  A user without a home directory has one among temporary files.
  """
  if chosen := os.environ.get("REALM_CACHE"):
    return os.path.abspath(os.path.expanduser(chosen))
  home = os.path.expanduser("~")
  if os.path.isabs(home) and os.environ.get("HOME") != "":
    return os.path.join(home, ".cache", "realm_jax")
  path = os.path.join(tempfile.gettempdir(), f"realm_jax_{os.getuid()}")
  os.makedirs(path, mode=0o700, exist_ok=True)
  if os.stat(path).st_uid != os.getuid():  # whose compiled programs would be run
    raise ValueError(f"{path} belongs to another user; name a directory with REALM_CACHE")
  return path


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
  """Locks a directory of the cache, so that one process at a time fills it."""
  with open(f"{folder}.lock", "w") as file:
    system.lock(file.fileno(), wait=True)
    yield
