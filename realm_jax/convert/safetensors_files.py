"""Files in the safetensors format, as `transformers` reads and writes them."""

import os
from collections.abc import Mapping

import ml_dtypes  # noqa: F401  gives NumPy the dtype bfloat16
import numpy as np
import safetensors
import safetensors.numpy

from realm_jax.foundations import atomic_files


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Returns the arrays of a file by name.

  Raises:
    ValueError: If the file is damaged.
  """
  try:
    return safetensors.numpy.load_file(path)
  except safetensors.SafetensorError as error:
    raise ValueError(f"{os.fspath(path)} is not a complete safetensors file: {error}") from error


def write(path: str | os.PathLike, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes arrays."""
  # The library copies an array's memory as is, ignoring its strides.
  contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
  atomic_files.write_bytes(path, safetensors.numpy.save(contiguous, metadata={"format": "pt"}))
