"""Models of the Hugging Face hub by their address, in the cache that its own library keeps.

`HF_ENDPOINT`, `HF_HOME`, `HF_TOKEN` and `HF_HUB_OFFLINE` hold as they do there.
"""

import dataclasses
import os
import re

_SCHEME = "hf://"
_ADDRESS = re.compile(r"(?:hf://)?([\w-][\w.-]*/[\w-][\w.-]*)(?:@([\w./-]+))?")
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
  try:
    import huggingface_hub
  except ImportError as error:
    raise ValueError(
      f"there is no directory {path}, and models of the Hugging Face hub need its library: "
      "pip install 'realm_jax[hub]'"
    ) from error
  name, revision = _ADDRESS.fullmatch(path).groups()  # pyright: ignore[reportOptionalMemberAccess]
  # A commit never changes, so that it need not be asked for where it has been downloaded.
  for local in (True, False) if revision and _COMMIT.fullmatch(revision) else (False,):
    try:
      directory = huggingface_hub.snapshot_download(
        name, revision=revision, ignore_patterns=[*_IGNORED], local_files_only=local
      )
    except (OSError, ValueError) as error:
      if local:
        continue
      reason = str(error).strip().splitlines()[0]
      raise FileNotFoundError(
        f"there is no directory {path}, and the Hugging Face hub did not give it: {reason}"
      ) from error
    return Model(directory, f"{_SCHEME}{name}@{os.path.basename(directory)}")
  raise AssertionError("the last try returns or raises")
