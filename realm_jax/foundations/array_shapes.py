"""What is checked of arrays in files that others made, before anything is looked up in them."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np


def check(arrays: Mapping[str, Any], shapes: Mapping[str, str], **sizes: int) -> None:
  """Checks the kinds and shapes of some arrays.

  Args:
    arrays: Arrays, or their records.
    shapes: A kind and the size of each axis, such as "f4 N E" or "i8 N+1"; "u" is of any width, and
      a letter is one number everywhere.
    sizes: Letters that are known.

  Raises:
    KeyError, ValueError: If one is missing or another.
  """
  for name, shape in shapes.items():
    kind, axes = _parsed(shape)
    array = arrays[name]
    dtype = np.dtype(array.dtype)
    fits = dtype.str.startswith(kind, 1) and len(array.shape) == len(axes)
    for (letter, more), size in zip(axes, array.shape, strict=False):
      known = letter if isinstance(letter, int) else sizes.setdefault(letter, size - more)
      fits = fits and size == known + more >= more
    if not fits:
      raise ValueError(f"{name} is {dtype} {[*array.shape]}, not {shape}")


@functools.cache
def _parsed(shape: str) -> tuple[str, tuple[tuple[str | int, int], ...]]:
  """Returns the kind, and the letter or size of each axis with what is added to it."""
  kind, *axes = shape.split()
  parts = [axis.partition("+") for axis in axes]
  return kind, tuple((int(a) if a.isdigit() else a, int(more or 0)) for a, _, more in parts)


def check_ends(name: str, ends: np.ndarray, length: int) -> None:
  """Checks that parts lie one after the other, from 0 on, and end where an array does."""
  if ends[0] or ends[-1] != length or (np.diff(ends) < 0).any():
    raise ValueError(f"{name} do not end between 0 and {length}")


def check_vectors(name: str, vectors: np.ndarray) -> None:
  """Checks that all inner products of vectors `[..., E]` are finite."""
  if not np.isfinite(np.einsum("...E,...E->...", vectors, vectors)).all():
    raise ValueError(f"{name} have NaN, infinity or numbers that are too large")


def check_range(name: str, numbers: np.ndarray, limit: int | np.ndarray, *, least: int = 0) -> None:
  """Checks that integers are in a range, which may be one for each."""
  if (numbers < least).any() or (numbers >= limit).any():
    raise ValueError(f"{name} are out of range")
