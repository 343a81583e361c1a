"""The weights of a Hugging Face directory: safetensors or torch files, whole or in shards."""

import json
import os

import numpy as np

from realm_jax.convert import safetensors_files, torch_files

_READERS = {
  "model.safetensors": safetensors_files.read,
  "pytorch_model.bin": torch_files.read,
}


def read(directory: str | os.PathLike) -> dict[str, np.ndarray]:
  """Returns the arrays of a directory by name.

  Raises:
    FileNotFoundError: if there are no weights, or a shard is missing.
    ValueError: if a file is damaged.
  """
  for file_name, reader in _READERS.items():
    path = os.path.join(directory, file_name)
    if os.path.exists(path):
      return reader(path)
    if os.path.exists(path + ".index.json"):
      with open(path + ".index.json", encoding="utf-8") as file:
        shards = sorted(set(json.load(file)["weight_map"].values()))
      weights = {}
      for shard in shards:
        if os.path.basename(shard) != shard:
          raise ValueError(f"{path}.index.json names {shard!r}, which is no file beside it")
        weights |= reader(os.path.join(directory, shard))
      return weights
  raise FileNotFoundError(
    f"no weights in {os.fspath(directory)}; it should hold {' or '.join(_READERS)}"
  )
