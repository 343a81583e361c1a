"""Texts of released passages: TFRecord files, or Hugging Face's pickled numpy array."""

import os
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from realm_jax.convert import sealed_pickles
from realm_jax.convert.sealed_pickles import Function

_ARRAY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")


def read(path: str | os.PathLike) -> Iterable[bytes]:
  """Returns the records of a file in order: `.tfr`, `.tfr.gz` or `.npy`.

  Raises:
    FileNotFoundError: If the file is missing.
    ValueError: If a pickled array contains anything but bytes.
  """
  path = os.fspath(path)
  if not os.path.exists(path):
    raise FileNotFoundError(f"no records at {path}")
  if path.endswith(".npy"):
    return _pickled(path)
  compression = "GZIP" if path.endswith(".gz") else ""
  return tf.data.TFRecordDataset(path, compression_type=compression).as_numpy_iterator()


class _Array:
  """Stands for a numpy array during unpickling."""

  __slots__ = ("records",)

  def __setstate__(self, state):
    _, _, _, _, self.records = state


class _Dtype:
  """Stands for a numpy dtype, which is ignored."""

  __slots__ = ()

  def __setstate__(self, state):
    del state


def _pickled(path: str) -> list[bytes]:
  known: dict[tuple[str, str], object] = {
    (module, "_reconstruct"): Function(lambda *_: _Array()) for module in _ARRAY_MODULES
  }
  known["numpy", "ndarray"] = sealed_pickles.Sealed(None)
  known["numpy", "dtype"] = Function(lambda *_: _Dtype())
  # How pickles for Python 2 write bytes.
  known["_codecs", "encode"] = Function(lambda text, _: text.encode("latin1"))
  try:
    with open(path, "rb") as file:
      version = np.lib.format.read_magic(file)
      read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
      }[version]
      read_header(file)
      array = sealed_pickles.Unpickler(file, known=known).load()
    records = array.records
    if not all(isinstance(record, bytes) for record in records):
      raise ValueError("not all of its records are bytes")
  except sealed_pickles.ERRORS as error:
    raise ValueError(f"{path} is not an array of records that is safe to read: {error}") from error
  return records
