"""What the Hugging Face hub has, by its address, in the cache that its own library keeps.

`HF_ENDPOINT`, `HF_HOME`, `HF_TOKEN` and `HF_HUB_OFFLINE` hold as they do there.
"""

import dataclasses
import glob
import os
import re
import urllib.parse

from realm_jax.foundations import extras

_SCHEME = "hf://"
_ADDRESS = re.compile(r"(?:hf://)?([\w-][\w.-]*/[\w-][\w.-]*)(?:@([\w./-]+))?")
_DATASETS = "hf://datasets/"
_FILES = re.compile(rf"{_DATASETS}([\w-][\w.-]*/[\w-][\w.-]*)(?:@([^/]+))?(?:/(.*))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Weights in other formats, most of them pickles, which are never read.
_IGNORED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack", "*.ot", "*.onnx*")
_IGNORED += ("*.tflite", "*.mlmodel", "*.gguf", "onnx/*", "openvino/*", "coreml/*")


@dataclasses.dataclass(frozen=True)
class Model:
  """A model on this machine.

  Attributes:
    directory: Has its files.
    address: `hf://OWNER/NAME@COMMIT`, or its directory if it is from elsewhere.
  """

  directory: str
  address: str


def is_address(path: str | os.PathLike) -> bool:
  """Returns whether a path is `hf://OWNER/NAME`, or `OWNER/NAME` and nothing is there."""
  path = os.fspath(path)
  return bool(_ADDRESS.fullmatch(path)) and (path.startswith(_SCHEME) or not os.path.exists(path))


def fetch(path: str | os.PathLike) -> Model:
  """Returns a model, which is downloaded if its path is an address and the cache does not have it.

  Args:
    path: A directory, `OWNER/NAME` or `hf://OWNER/NAME`, the latter two also with `@REVISION`.

  Raises:
    FileNotFoundError: If the hub has no such model, or cannot be reached.
    ValueError: If huggingface_hub is not installed.
  """
  path = os.fspath(path)
  if not is_address(path):
    return Model(path, path)
  name, revision = _ADDRESS.fullmatch(path).groups()  # pyright: ignore[reportOptionalMemberAccess]
  directory = _download(name, revision, path, ignore_patterns=[*_IGNORED])
  return Model(directory, f"{_SCHEME}{name}@{os.path.basename(directory)}")


def fetch_files(path: str | os.PathLike) -> str:
  """Returns where files of a dataset are, after downloading those that the cache does not have.

  Args:
    path: `hf://datasets/OWNER/NAME`, also with `@REVISION`, and the path of a file or a folder or a
      glob pattern below it; any other path is returned as it is. All files are meant without one,
      except for the dataset's card.

  Raises:
    FileNotFoundError: If the hub has no such files, or cannot be reached.
    ValueError: If the address is incomplete, or huggingface_hub is not installed.
  """
  path = os.fspath(path)
  if not path.startswith(_DATASETS):
    return path
  if not (parts := _FILES.fullmatch(path)):
    raise ValueError(f"{path} is no dataset; give {_DATASETS}OWNER/NAME, or a file or folder of it")
  name, revision, pattern = parts.groups()
  revision = revision and urllib.parse.unquote(revision)
  pattern = (pattern or "").rstrip("/")
  wanted = [pattern, f"{pattern}/*", pattern.replace("**/", "")] if pattern else None
  ignored = [*_IGNORED] if pattern else [*_IGNORED, "README.md"]
  directory = _download(
    name, revision, path, repo_type="dataset", allow_patterns=wanted, ignore_patterns=ignored
  )
  found = os.path.join(directory, pattern) if pattern else directory
  matched = os.path.join(glob.escape(directory), pattern)
  if not (os.path.exists(found) or glob.glob(matched, recursive=True)):
    raise FileNotFoundError(f"the Hugging Face hub, or its cache if offline, has no {path}")
  return found


def _download(name: str, revision: str | None, path: str, **settings) -> str:
  """Returns the directory of a commit in the cache."""
  missing = f"there is no {settings.get('repo_type', 'directory')} {path}"
  try:
    import huggingface_hub
  except ImportError as error:
    raise ValueError(
      f"{missing}, and the Hugging Face hub needs its library: {extras.how_to_install('hub')}"
    ) from error
  # A commit never changes, so that a whole one need not be asked for where it has been downloaded.
  is_whole = revision and _COMMIT.fullmatch(revision) and "allow_patterns" not in settings
  for local in (True, False) if is_whole else (False,):
    try:
      return huggingface_hub.snapshot_download(
        name, revision=revision, local_files_only=local, **settings
      )
    except (OSError, ValueError) as error:
      if local:
        continue
      reason = str(error).strip().splitlines()[0]
      raise FileNotFoundError(
        f"{missing}, and the Hugging Face hub did not give it: {reason}"
      ) from error
  raise AssertionError("the last try returns or raises")
