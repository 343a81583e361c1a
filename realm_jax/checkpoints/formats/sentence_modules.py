"""The modules that a sentence-transformers directory names, checked before any is loaded.

The library imports the classes that a model names, and importing a class of the model's own runs
its code. Releases before 6 do so for every local directory (CVE-2026-68770).
"""

import os
import pathlib
from collections.abc import Sequence

from realm_jax.foundations import text_files

FILE = "modules.json"
LIBRARY = "sentence_transformers."
_WEIGHTS_FILE, _PICKLE = "model.safetensors", "pytorch_model.bin"
_ROUTES_FILES = ("router_config.json", "config.json")  # of a `Router`, the latter before version 5
_MOST = 100


def read(directory: str | os.PathLike) -> Sequence[tuple[str, str]] | None:
  """Reads and checks `modules.json`, and what a `Router` names in its own folder.

  Returns:
    The class, without its module, and the folder, relative to the directory, of each module; None
    if there is no such file.

  Raises:
    ValueError: If a class is not the library's, a folder is outside the directory, or weights are
      in a pickle; or if what lists the modules is damaged.
  """
  path = os.path.join(directory, FILE)
  if not os.path.exists(path):
    return None
  listed = text_files.read_json(path, kind=list)
  waiting = [(m.get("type"), m.get("path")) if isinstance(m, dict) else (m, None) for m in listed]
  checked = []
  for number, (kind, folder) in enumerate(waiting):  # grows while it is read
    if not isinstance(kind, str) or not isinstance(folder, str):
      raise ValueError(f"{path}: every module needs a `type` and a `path`, which are strings")
    if not kind.startswith(LIBRARY):
      raise ValueError(f"{os.fspath(directory)}: {kind} is the model's own code, which is not run")
    if os.path.isabs(folder) or os.pardir in pathlib.PurePath(folder).parts:
      raise ValueError(f"{path}: the module {folder} is outside the directory of the model")
    if number == _MOST:
      raise ValueError(f"{path}: more than {_MOST} modules")
    inside = pathlib.Path(directory, folder)
    if (inside / _PICKLE).exists() and not [*inside.glob(f"{_WEIGHTS_FILE}*")]:
      raise ValueError(f"{inside / _PICKLE} is a pickle, which is not read; save {_WEIGHTS_FILE}")
    for settings in filter(os.path.exists, (inside / name for name in _ROUTES_FILES)):
      routed = text_files.read_json(settings).get("types")
      if isinstance(routed, dict):
        waiting += [(kind, os.path.join(folder, name)) for name, kind in routed.items()]
    checked.append((kind.rpartition(".")[2], folder))
  return checked[: len(listed)]
