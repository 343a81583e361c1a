"""Imports a job for its signature, without the libraries that it computes with.

Help and wrong flags are answered from a signature, and importing TensorFlow and JAX takes many
seconds. While a signature is read, placeholders stand for such libraries: what is defined with
them means nothing, and is forgotten afterwards, but configurations are plain dataclasses.
"""

import contextlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

# Slow to import, or not there where only a knowledge base is searched.
_SLOW = frozenset(
  "apache_beam chex faiss flax gin google_crc32c jax jaxlib matplotlib ml_dtypes msgpack optax "
  "orbax psutil safetensors scann scipy seqio t5 t5x tensorboard tensorflow tensorstore "
  "tokenizers".split()
)


class _Placeholder(types.ModuleType):
  """Stands for a library and for all that is taken from it, called, or inherited."""

  __path__: Sequence[str] = ()

  def __getattr__(self, name: str) -> "_Placeholder":
    if name.startswith("__"):
      raise AttributeError(name)
    return self

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    decorates = len(args) == 1 and not kwargs and isinstance(args[0], type)
    return args[0] if decorates else self

  def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
    return ()

  def __getitem__(self, key: Any) -> "_Placeholder":
    return self

  def __or__(self, other: Any) -> "_Placeholder":
    return self

  __ror__ = __or__


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
  def find_spec(
    self, fullname: str, path: Any = None, target: Any = None
  ) -> importlib.machinery.ModuleSpec | None:
    slow = fullname.partition(".")[0] in _SLOW
    return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if slow else None

  def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
    return _Placeholder(spec.name)

  def exec_module(self, module: types.ModuleType) -> None:
    """A placeholder has nothing to execute."""


@contextlib.contextmanager
def reading() -> Iterator[None]:
  """Imports modules with placeholders; those that are here already stay as they are."""
  if "jax" in sys.modules:
    yield
    return
  before, finder, package = set(sys.modules), _Finder(), __name__.partition(".")[0]
  sys.meta_path.insert(0, finder)
  try:
    yield
  finally:
    sys.meta_path.remove(finder)
    new = {name: module for name, module in sys.modules.items() if name not in before}
    if any(isinstance(module, _Placeholder) for module in new.values()):
      for name, module in new.items():
        if isinstance(module, _Placeholder) or name.partition(".")[0] == package:
          del sys.modules[name]
          parent, _, child = name.rpartition(".")
          vars(sys.modules.get(parent, module)).pop(child, None)
