"""Reads pickles of plain data without importing or calling anything that they name.

A pickle names functions and classes to call. Here each known name maps to a function of ours, and
an unknown name is an error. The results are sealed, so the pickle can neither inspect nor change
them.
"""

import pickle
from collections.abc import Callable, Mapping

# Raised by damaged or hostile pickles.
ERRORS = (
  AttributeError,
  EOFError,
  IndexError,
  KeyError,
  OverflowError,
  TypeError,
  ValueError,
  pickle.UnpicklingError,
)


class Sealed:
  """A value that the pickle can only pass around."""

  __slots__ = ("value",)

  def __init__(self, value):
    object.__setattr__(self, "value", value)

  def __setattr__(self, name, value):
    raise pickle.UnpicklingError(f"it sets {name!r}")


class Function(Sealed):
  """A function of ours in place of a named one."""

  __slots__ = ()

  def __call__(self, *args):
    return self.value(*args)


class Dict(dict):
  """An ordered dict that ignores any other state."""

  __slots__ = ()

  def __setstate__(self, state):
    del state


class Unpickler(pickle.Unpickler):
  """Unpickles plain data.

  Args:
    known: Replacements for the expected names, by module and name.
    load: Returns the object for a persistent id.
  """

  def __init__(
    self,
    file,
    *,
    known: Mapping[tuple[str, str], object],
    load: Callable[[object], object] | None = None,
  ):
    super().__init__(file)
    self._known, self._load = known, load

  def find_class(self, module: str, name: str):
    if (module, name) not in self._known:
      raise pickle.UnpicklingError(f"it asks for {module}.{name}")
    return self._known[module, name]

  def persistent_load(self, pid):
    if self._load is None:
      raise pickle.UnpicklingError("it refers to data outside of itself")
    return self._load(pid)
