"""The modules of a sentence-transformers directory, which turn token vectors into an embedding."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from realm_jax.convert import safetensors_files
from realm_jax.models.dual_encoder import DualEncoderConfig, Output, Pooling

MODULES_FILE = "modules.json"
PROMPTS_FILE = "config_sentence_transformers.json"
LAYER_NORM_EPSILON = 1e-5  # of every layer norm in sentence-transformers
# Before version 5.2 each mode had its own flag.
_POOLINGS = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceEncoder:
  """The modules after BERT.

  Attributes:
    weights: Weights of pooler and projection, by the names of a REALM embedder.
    bert_directory: Directory of BERT, relative to the model's.
    prompts: Texts that precede every text, by setting: "query_prompt", "passage_prompt".
  """

  pooling: Pooling
  output: Output
  weights: dict[str, np.ndarray]
  bert_directory: str = ""
  prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)


def read(directory: str | os.PathLike) -> SentenceEncoder | None:
  """Reads `modules.json` and the modules it names; returns None if the directory has none.

  Raises:
    ValueError: If no tower of ours computes what the modules compute.
  """
  path = os.path.join(directory, MODULES_FILE)
  if not os.path.exists(path):
    return None
  modules = [(m["type"].rpartition(".")[2], m["path"]) for m in _read_json(path)]
  kinds = [kind for kind, _ in modules]
  paths = [os.path.join(directory, folder) for _, folder in modules]
  if kinds[:2] != ["Transformer", "Pooling"]:
    raise ValueError(
      f"{os.fspath(directory)}: modules {kinds}; they must begin with a Transformer and a Pooling"
    )
  prompts = _prompts(directory)
  pooling = _pooling(paths[1], prompted=bool(prompts))
  bert_directory, rest = modules[0][1], kinds[2:]
  if rest in ([], ["Normalize"]):
    output = "unit_length" if rest else "pooled"
    return SentenceEncoder(
      pooling=pooling, output=output, weights={}, bert_directory=bert_directory, prompts=prompts
    )
  weights = {}
  if rest[:2] == ["Dense", "Dense"] and pooling == "cls":
    weights |= _dense(paths[2], activation="Tanh", name="pooler.dense")
    pooling, rest, paths = "pooler", rest[1:], paths[1:]
  if rest != ["Dense", "LayerNorm"]:
    raise ValueError(
      f"{os.fspath(directory)}: modules {kinds}; only Normalize, or Dense and LayerNorm, may "
      "follow the pooling (and a Dense with tanh, BERT's pooler, before them)"
    )
  weights |= _dense(paths[2], activation="Identity", name="cls.dense")
  norm = safetensors_files.read_directory(paths[3])
  weights |= {f"cls.LayerNorm.{leaf}": norm[f"norm.{leaf}"] for leaf in ("weight", "bias")}
  return SentenceEncoder(
    pooling=pooling,
    output="projection",
    weights=weights,
    bert_directory=bert_directory,
    prompts=prompts,
  )


def pooling_settings(config: DualEncoderConfig) -> dict:
  """Returns the `config.json` of a tower's pooling."""
  mode = "mean" if config.pooling == "mean" else "cls"
  flags = {flag: each == mode for each, flag in _POOLINGS.items()}
  return {"word_embedding_dimension": config.bert.hidden_size, **flags}


def _prompts(directory: str | os.PathLike) -> dict[str, str]:
  path = os.path.join(directory, PROMPTS_FILE)
  declared = _read_json(path).get("prompts", {}) if os.path.exists(path) else {}
  # A passage is the first of these that sentence-transformers' `encode_document` finds.
  passage = next((name for name in ("document", "passage", "corpus") if name in declared), "")
  found = {"query_prompt": declared.get("query"), "passage_prompt": declared.get(passage)}
  return {of: text for of, text in found.items() if text}


def _pooling(path: str, *, prompted: bool) -> Pooling:
  settings = _read_json(os.path.join(path, "config.json"))
  if prompted and not settings.get("include_prompt", True):
    raise ValueError(f"{path}: a pooling that leaves out the prompt is not supported")
  mode: Any = settings.get("pooling_mode")
  if mode is None:
    flags = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value]
    mode = next((mode for mode, flag in _POOLINGS.items() if flags == [flag]), flags)
  if mode not in _POOLINGS:
    raise ValueError(f"{path}: pooling {mode}; only {' and '.join(_POOLINGS)} are supported")
  return mode


def _dense(path: str, *, activation: str, name: str) -> dict[str, np.ndarray]:
  settings = _read_json(os.path.join(path, "config.json"))
  found = settings.get("activation_function", "").rpartition(".")[2]
  if found != activation:
    raise ValueError(f"{path}: activation {found}; only {activation} is supported here")
  weights = safetensors_files.read_directory(path)
  if "linear.bias" not in weights:
    weights["linear.bias"] = np.zeros(len(weights["linear.weight"]), np.float32)
  return {f"{name}.{leaf}": weights[f"linear.{leaf}"] for leaf in ("weight", "bias")}


def _read_json(path: str) -> dict:
  return json.loads(pathlib.Path(path).read_text("utf-8"))
