"""The modules of a sentence-transformers directory, which turn token vectors into an embedding."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from realm_jax.checkpoints.formats import safetensors_files
from realm_jax.foundations import text_files
from realm_jax.models.dual_encoder import DualEncoderConfig, Output, Pooling
from realm_jax.text.wordpieces import CONFIG_FILE

MODULES_FILE = "modules.json"
PROMPTS_FILE = "config_sentence_transformers.json"
LAYER_NORM_EPSILON = 1e-5  # of every layer norm in sentence-transformers
_TYPES = "sentence_transformers."
# The settings of a Transformer module; older versions had a name for each architecture.
_SETTINGS = [f"sentence_{of}_config.json" for of in ("bert", "roberta", "camembert", "xlm-roberta")]
# Before version 5.2 each mode had its own flag.
_POOLINGS = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceEncoder:
  """The modules after BERT.

  Attributes:
    weights: Weights of pooler and projection, by the names of a REALM embedder.
    bert_directory: Directory of BERT, relative to the model's.
    prompts: Texts that precede every text, by setting: "query_prompt", "passage_prompt".
    max_length: The most wordpieces that it reads of a text, with prompt and special ones; None if
      only its positions limit them.
    lower_case: Whether texts lose their case, whatever the tokenizer declares.
  """

  pooling: Pooling
  output: Output
  weights: dict[str, np.ndarray]
  bert_directory: str = ""
  prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
  max_length: int | None = None
  lower_case: bool = False


def read(directory: str | os.PathLike) -> SentenceEncoder | None:
  """Reads `modules.json` and the modules it names; returns None if the directory has none.

  Raises:
    ValueError: If no tower of ours computes what the modules compute.
  """
  path = os.path.join(directory, MODULES_FILE)
  if not os.path.exists(path):
    return None
  listed = text_files.read_json(path, kind=list)
  if own := [m["type"] for m in listed if not m["type"].startswith(_TYPES)]:
    raise ValueError(f"{os.fspath(directory)}: {own[0]} is the model's own code, which is not run")
  modules = [(m["type"].rpartition(".")[2], m["path"]) for m in listed]
  kinds = [kind for kind, _ in modules]
  paths = [os.path.join(directory, folder) for _, folder in modules]
  if kinds[:2] != ["Transformer", "Pooling"]:
    raise ValueError(
      f"{os.fspath(directory)}: modules {kinds}; they must begin with a Transformer and a Pooling"
    )
  settings = _optional(directory, PROMPTS_FILE)
  prompts = _prompts(settings, directory)
  similarity = settings.get("similarity_fn_name") or "dot"
  if similarity not in ("dot", "cosine") or settings.get("truncate_dim"):
    raise ValueError(
      f"{os.fspath(directory)}: similarity_fn_name={similarity!r}, truncate_dim="
      f"{settings.get('truncate_dim')}; whole embeddings are compared, by 'dot' or 'cosine'"
    )
  pooling = _pooling(paths[1], prompted=bool(prompts))
  common = _transformer(paths[0]) | {"bert_directory": modules[0][1], "prompts": prompts}
  rest = kinds[2:]
  if rest in ([], ["Normalize"]):
    output = "unit_length" if rest or similarity == "cosine" else "pooled"
    return SentenceEncoder(pooling=pooling, output=output, weights={}, **common)
  weights = {}
  if rest[:2] == ["Dense", "Dense"] and pooling == "cls":
    weights |= _dense(paths[2], activation="Tanh", name="pooler.dense")
    pooling, rest, paths = "pooler", rest[1:], paths[1:]
  if rest != ["Dense", "LayerNorm"]:
    raise ValueError(
      f"{os.fspath(directory)}: modules {kinds}; only Normalize, or Dense and LayerNorm, may "
      "follow the pooling (and a Dense with tanh, BERT's pooler, before them)"
    )
  if similarity == "cosine":
    raise ValueError(f"{os.fspath(directory)}: similarity_fn_name='cosine' after a LayerNorm")
  weights |= _dense(paths[2], activation="Identity", name="cls.dense")
  norm = safetensors_files.read_directory(paths[3])
  weights |= {f"cls.LayerNorm.{leaf}": norm[f"norm.{leaf}"] for leaf in ("weight", "bias")}
  return SentenceEncoder(pooling=pooling, output="projection", weights=weights, **common)


def pooling_settings(config: DualEncoderConfig) -> dict:
  """Returns the `config.json` of a tower's pooling."""
  mode = "mean" if config.pooling == "mean" else "cls"
  flags = {flag: each == mode for each, flag in _POOLINGS.items()}
  return {"word_embedding_dimension": config.bert.hidden_size, **flags}


def _transformer(path: str) -> dict[str, Any]:
  """Returns the fields of a `SentenceEncoder` that its first module declares."""
  settings = next(filter(None, (_optional(path, name) for name in _SETTINGS)), {})
  limits = [settings.get("max_seq_length"), _optional(path, CONFIG_FILE).get("model_max_length")]
  declared = next((limit for limit in limits if limit is not None), None)
  if declared is not None and declared < 3:
    raise ValueError(f"{path}: max_seq_length={declared} leaves no room for text")
  return {"max_length": declared, "lower_case": bool(settings.get("do_lower_case"))}


def _optional(directory: str | os.PathLike, name: str) -> dict:
  path = os.path.join(directory, name)
  return text_files.read_json(path) if os.path.exists(path) else {}


def _prompts(settings: dict, directory: str | os.PathLike) -> dict[str, str]:
  declared, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
  if default is not None and default not in declared:
    raise ValueError(
      f"{os.fspath(directory)}: default_prompt_name={default!r} in {PROMPTS_FILE} is none of its "
      f"prompts, {', '.join(declared) or 'of which there are none'}"
    )
  # A passage is the first of these that sentence-transformers' `encode_document` finds.
  passage = next((name for name in ("document", "passage", "corpus") if name in declared), "")
  texts = {"query_prompt": "query", "passage_prompt": passage}
  found = {of: declared.get(name, declared.get(default)) for of, name in texts.items()}
  return {of: text for of, text in found.items() if text}


def _pooling(path: str, *, prompted: bool) -> Pooling:
  settings = text_files.read_json(os.path.join(path, "config.json"))
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
  settings = text_files.read_json(os.path.join(path, "config.json"))
  found = settings.get("activation_function", "").rpartition(".")[2]
  if found != activation:
    raise ValueError(f"{path}: activation {found}; only {activation} is supported here")
  weights = safetensors_files.read_directory(path)
  if "linear.bias" not in weights:
    weights["linear.bias"] = np.zeros(len(weights["linear.weight"]), np.float32)
  return {f"{name}.{leaf}": weights[f"linear.{leaf}"] for leaf in ("weight", "bias")}
