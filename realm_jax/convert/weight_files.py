"""Reads the weights of a Hugging Face directory: safetensors or torch files, possibly sharded."""

import json
import os
import pathlib

import numpy as np

from realm_jax.convert import safetensors_files, torch_files

_READERS = {"model.safetensors": safetensors_files.read, "pytorch_model.bin": torch_files.read}


def read(directory: str | os.PathLike) -> dict[str, np.ndarray]:
  """Returns the arrays of a directory by name.

  Raises:
    FileNotFoundError: If there are no weights, or a shard is missing.
    ValueError: If a file is damaged.
  """
  for file_name, reader in _READERS.items():
    path = os.path.join(directory, file_name)
    if os.path.exists(path):
      return reader(path)
    index = pathlib.Path(f"{path}.index.json")
    if index.exists():
      weights = {}
      for shard in sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values())):
        if os.path.basename(shard) != shard:
          raise ValueError(f"{index} names {shard!r}, which is not a file next to it")
        weights |= reader(os.path.join(directory, shard))
      return weights
  raise FileNotFoundError(
    f"no weights in {os.fspath(directory)}; it should contain {' or '.join(_READERS)}"
  )
