"""Reads Hugging Face directories: BERT, REALM and sentence-transformers."""

import os

from realm_jax.checkpoints.formats import huggingface_names, safetensors_files, sentence_encoders
from realm_jax.checkpoints.formats.imported_model import Source
from realm_jax.foundations import text_files

CONFIG_FILE = "config.json"


def read(directory: str) -> Source:
  """Reads the weights and settings of a directory.

  Raises:
    FileNotFoundError: If weights or settings are missing.
    ValueError: If they are damaged or not supported.
  """
  sentence_encoder = sentence_encoders.read(directory)
  folder = directory
  if sentence_encoder is not None:
    folder = os.path.join(directory, sentence_encoder.bert_directory)
  path = os.path.join(folder, CONFIG_FILE)
  if not os.path.exists(path):
    raise FileNotFoundError(f"no {CONFIG_FILE} in {folder}; download it with the weights")
  settings = text_files.read_json(path)
  found = safetensors_files.read_directory(folder)
  weights = {new: found[old] for new, old in huggingface_names.modernised(found).items()}
  if sentence_encoder is not None:
    weights |= sentence_encoder.weights
  return Source(
    name=directory, weights=weights, settings=settings, sentence_encoder=sentence_encoder
  )
