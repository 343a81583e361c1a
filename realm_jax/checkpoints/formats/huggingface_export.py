"""Writes directories that transformers and sentence-transformers can load.

sentence-transformers fixes the epsilon of its layer norm. A layer norm of c·x with epsilon c²·e
equals that of x with e, so the projection before it is scaled by c and the embeddings stay the
same.
"""

import math
import os
from collections.abc import Mapping

import numpy as np

from realm_jax.checkpoints.formats import (
  bert_configs,
  huggingface_names,
  safetensors_files,
  sentence_encoders,
)
from realm_jax.checkpoints.formats.imported_model import Source
from realm_jax.foundations import atomic_files, text_files
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.text import tokenization

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


_MODULES = "sentence_transformers.models."
_ACTIVATIONS = {
  "Tanh": "torch.nn.modules.activation.Tanh",
  "Identity": "torch.nn.modules.linear.Identity",
}


def write_masked_lm(
  directory: str,
  params: Mapping[str, np.ndarray],
  *,
  config: BertConfig,
  tokenizer: tokenization.WordPieceTokenizer,
) -> None:
  """Writes a knowledge-augmented encoder and its tokenizer as a `BertForMaskedLM`."""
  encoder = huggingface_names.encoder(config.num_layers)
  names = huggingface_names.prefixed(encoder, here="bert/", there="bert.")
  names |= huggingface_names.masked_lm()
  _write_bert(directory, params, names, config=config, kind="BertForMaskedLM")
  tokenizer.save(directory)


def write_sentence_encoder(
  directory: str,
  params: Mapping[str, np.ndarray],
  *,
  config: DualEncoderConfig,
  tokenizer: tokenization.WordPieceTokenizer,
  max_length: int,
) -> None:
  """Writes a tower and its tokenizer as a sentence-transformers directory."""
  encoder = huggingface_names.encoder(config.bert.num_layers)
  names = huggingface_names.prefixed(encoder, here="bert/")
  if config.pooling == "pooler":
    names |= huggingface_names.pooler()
  modules = [("Transformer", "")]

  def add(kind: str, settings: dict, weights: Mapping[str, np.ndarray]) -> None:
    folder = f"{len(modules)}_{kind}"
    modules.append((kind, folder))
    os.mkdir(os.path.join(directory, folder))
    atomic_files.write_json(os.path.join(directory, folder, CONFIG_FILE), settings)
    if weights:
      safetensors_files.write(
        os.path.join(directory, folder, safetensors_files.WEIGHTS_FILE), weights
      )

  _write_bert(directory, params, names, config=config.bert, kind="BertModel")
  tokenizer.save(directory)
  add("Pooling", sentence_encoders.pooling_settings(config), {})
  if config.pooling == "pooler":
    add("Dense", *_dense(params, "pooler/dense", activation="Tanh", scale=1.0))
  if config.output == "projection":
    scale = math.sqrt(sentence_encoders.LAYER_NORM_EPSILON / config.layer_norm_epsilon)
    add("Dense", *_dense(params, "projection", activation="Identity", scale=scale))
    norm = {"norm.weight": params["projection_norm/scale"]}
    norm["norm.bias"] = params["projection_norm/bias"]
    add("LayerNorm", {"dimension": config.projection_size}, norm)
  elif config.output == "unit_length":
    add("Normalize", {}, {})
  atomic_files.write_json(
    os.path.join(directory, sentence_encoders.MODULES_FILE),
    [
      {"idx": i, "name": str(i), "path": folder, "type": _MODULES + kind}
      for i, (kind, folder) in enumerate(modules)
    ],
  )
  atomic_files.write_json(
    os.path.join(directory, "sentence_bert_config.json"),
    {"max_seq_length": max_length, "do_lower_case": False},
  )
  prompts = {"query": config.query_prompt, "document": config.passage_prompt}
  atomic_files.write_json(
    os.path.join(directory, sentence_encoders.PROMPTS_FILE),
    {
      "similarity_fn_name": "dot",
      "prompts": {of: f"{tokenizer.decode(ids)} " for of, ids in prompts.items() if ids},
    },
  )


def _write_bert(
  directory: str,
  params: Mapping[str, np.ndarray],
  names: Mapping[str, str],
  *,
  config: BertConfig,
  kind: str,
) -> None:
  weights = {
    theirs: huggingface_names.to_theirs(ours, params[ours]) for ours, theirs in names.items()
  }
  safetensors_files.write(os.path.join(directory, safetensors_files.WEIGHTS_FILE), weights)
  settings = {"architectures": [kind], **bert_configs.to_json(config)}
  atomic_files.write_json(os.path.join(directory, CONFIG_FILE), settings)


def _dense(
  params: Mapping[str, np.ndarray], path: str, *, activation: str, scale: float
) -> tuple[dict, dict[str, np.ndarray]]:
  """Returns the settings and weights of a dense module."""
  kernel, bias = params[f"{path}/kernel"], params[f"{path}/bias"]
  settings = {
    "in_features": len(kernel),
    "out_features": len(bias),
    "bias": True,
    "activation_function": _ACTIVATIONS[activation],
  }
  scale_f32 = np.float32(scale)
  return settings, {"linear.weight": scale_f32 * kernel.T, "linear.bias": scale_f32 * bias}
