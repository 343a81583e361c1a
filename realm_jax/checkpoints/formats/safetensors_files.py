"""Weights in the safetensors format, as `transformers` reads and writes them."""

import os
import pathlib
from collections.abc import Mapping

import ml_dtypes  # noqa: F401  gives NumPy the dtype bfloat16
import numpy as np
import safetensors
import safetensors.numpy

from realm_jax.foundations import atomic_files, text_files

WEIGHTS_FILE = "model.safetensors"


def read_directory(directory: str | os.PathLike) -> dict[str, np.ndarray]:
  """Returns the arrays of a Hugging Face directory by name; the file may be sharded.

  Raises:
    FileNotFoundError: If there are no weights, or a shard is missing.
    ValueError: If a file is damaged, or the weights are only a pickle.
  """
  path = pathlib.Path(directory, WEIGHTS_FILE)
  if path.exists():
    return read(path)
  index = pathlib.Path(f"{path}.index.json")
  if index.exists():
    weights = {}
    for shard in sorted(set(text_files.read_json(index)["weight_map"].values())):
      if os.path.basename(shard) != shard:
        raise ValueError(f"{index} names {shard!r}, which is not a file next to it")
      weights |= read(os.path.join(directory, shard))
    return weights
  if pickles := sorted(pathlib.Path(directory).glob("pytorch_model*.bin")):
    raise ValueError(
      f"{pickles[0]} is a pickle, which is not read; save it as {WEIGHTS_FILE}, as "
      "docs/checkpoints.md shows"
    )
  raise FileNotFoundError(f"no weights in {os.fspath(directory)}; it should have {WEIGHTS_FILE}")


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Returns the arrays of a file by name."""
  try:
    return safetensors.numpy.load_file(path)
  except safetensors.SafetensorError as error:
    raise ValueError(f"{os.fspath(path)} is not a complete safetensors file: {error}") from error


def write(path: str | os.PathLike, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes arrays."""
  # The library copies an array's memory as is, ignoring its strides.
  contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
  atomic_files.write_bytes(path, safetensors.numpy.save(contiguous, metadata={"format": "pt"}))
