"""The modules of a sentence-transformers directory: how vectors of tokens become an embedding."""

import dataclasses
import json
import os

import numpy as np

from realm_jax.convert import weight_files
from realm_jax.models.dual_encoder import DualEncoderConfig

MODULES_FILE = "modules.json"
LAYER_NORM_EPSILON = 1e-5  # of every layer norm there
# Before version 5.2 each mode had a flag of its own.
_POOLINGS = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceEncoder:
  """What follows BERT.

  Attributes:
    pooling: as in `DualEncoderConfig`.
    output: likewise.
    weights: of pooler and projection, by the names of a REALM embedder.
    bert_directory: where BERT lies, relative to the directory.
  """

  pooling: str
  output: str
  weights: dict[str, np.ndarray]
  bert_directory: str = ""


def read(directory: str | os.PathLike) -> SentenceEncoder | None:
  """Reads `modules.json` and what it names; None if the directory has none.

  Raises:
    ValueError: if the modules are none that a tower of ours can be.
  """
  path = os.path.join(directory, MODULES_FILE)
  if not os.path.exists(path):
    return None
  with open(path, encoding="utf-8") as file:
    modules = [(m["type"].rpartition(".")[2], m["path"]) for m in json.load(file)]
  kinds = [kind for kind, _ in modules]
  paths = [os.path.join(directory, folder) for _, folder in modules]
  if kinds[:2] != ["Transformer", "Pooling"]:
    raise ValueError(
      f"{os.fspath(directory)}: modules {kinds}; a Transformer and a Pooling are read"
    )
  pooling = _pooling(paths[1])
  bert_directory, rest = modules[0][1], kinds[2:]
  if rest in ([], ["Normalize"]):
    output = "unit_length" if rest else "pooled"
    return SentenceEncoder(
      pooling=pooling, output=output, weights={}, bert_directory=bert_directory
    )
  weights = {}
  if rest[:2] == ["Dense", "Dense"] and pooling == "cls":
    weights |= _dense(paths[2], activation="Tanh", name="pooler.dense")
    pooling, rest, paths = "pooler", rest[1:], paths[1:]
  if rest != ["Dense", "LayerNorm"]:
    raise ValueError(
      f"{os.fspath(directory)}: modules {kinds}; after the pooling, nothing, Normalize, "
      "or Dense and LayerNorm can be read (a Dense with tanh before it is BERT's pooler)"
    )
  weights |= _dense(paths[2], activation="Identity", name="cls.dense")
  norm = weight_files.read(paths[3])
  weights |= {f"cls.LayerNorm.{leaf}": norm[f"norm.{leaf}"] for leaf in ("weight", "bias")}
  return SentenceEncoder(
    pooling=pooling, output="projection", weights=weights, bert_directory=bert_directory
  )


def pooling_settings(config: DualEncoderConfig) -> dict:
  """Returns the `config.json` of the pooling of a tower."""
  mode = "mean" if config.pooling == "mean" else "cls"
  flags = {flag: each == mode for each, flag in _POOLINGS.items()}
  return {"word_embedding_dimension": config.bert.hidden_size, **flags}


def _pooling(path: str) -> str:
  settings = _read_json(os.path.join(path, "config.json"))
  mode = settings.get("pooling_mode")
  if mode is None:
    flags = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value]
    mode = next((mode for mode, flag in _POOLINGS.items() if flags == [flag]), flags)
  if mode not in _POOLINGS:
    raise ValueError(f"{path}: pooling {mode}; only {' or '.join(_POOLINGS)} can be read")
  return mode


def _dense(path: str, *, activation: str, name: str) -> dict[str, np.ndarray]:
  settings = _read_json(os.path.join(path, "config.json"))
  found = settings.get("activation_function", "").rpartition(".")[2]
  if found != activation:
    raise ValueError(f"{path}: activation {found}; only {activation} can be read in this place")
  weights = weight_files.read(path)
  if "linear.bias" not in weights:
    weights["linear.bias"] = np.zeros(len(weights["linear.weight"]), np.float32)
  return {f"{name}.{leaf}": weights[f"linear.{leaf}"] for leaf in ("weight", "bias")}


def _read_json(path: str) -> dict:
  with open(path, encoding="utf-8") as file:
    return json.load(file)
