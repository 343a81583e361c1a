"""Hugging Face's names for our settings and parameters of BERT and REALM, and their conversion.

Hugging Face transposes dense kernels and merges the axis of heads with the width of a head. Our
paths are joined by "/".
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from realm_jax.models import bert

_SIZES = {
  "vocab_size": "vocab_size",
  "hidden_size": "hidden_size",
  "num_layers": "num_hidden_layers",
  "num_heads": "num_attention_heads",
  "mlp_size": "intermediate_size",
  "max_length": "max_position_embeddings",
  "num_segments": "type_vocab_size",
}
_OPTIONAL = {
  "dropout_rate": "hidden_dropout_prob",
  "attention_dropout_rate": "attention_probs_dropout_prob",
  "layer_norm_epsilon": "layer_norm_eps",
  "initializer_range": "initializer_range",
}
_ACTIVATIONS: dict[str, Literal["gelu_erf", "gelu_tanh"]] = {
  "gelu": "gelu_erf",
  "gelu_new": "gelu_tanh",
  "gelu_pytorch_tanh": "gelu_tanh",
}
_HEAD_SIZE = 64  # in every BERT that Google released
# BERT by other names; in the second group, the first position is the one after the padding id.
_SAME = ("bert", "realm", "electra", "ernie", "dpr")
_ROBERTA = ("roberta", "xlm-roberta", "camembert")
# What would make it another network.
_ONLY = {
  "position_embedding_type": "absolute",
  "is_decoder": False,
  "add_cross_attention": False,
  "use_task_id": False,
  "pruned_heads": {},
  "quantization_config": None,
  "auto_map": {},
}

_DENSE = (("kernel", "weight"), ("bias", "bias"))
_NORM = (("scale", "weight"), ("bias", "bias"))
_HEADS = ("query", "key", "value")
_RENAMED = (
  (r"LayerNorm\.gamma$", "LayerNorm.weight"),
  (r"LayerNorm\.beta$", "LayerNorm.bias"),
  (r"(^|\.)lm_head\.dense\.", r"\1cls.predictions.transform.dense."),
  (r"(^|\.)lm_head\.layer_norm\.", r"\1cls.predictions.transform.LayerNorm."),
  (r"(^|\.)lm_head\.", r"\1cls.predictions."),
)


def _module(pairs, here: str, there: str) -> dict[str, str]:
  return {f"{here}/{ours}": f"{there}.{theirs}" for ours, theirs in pairs}


# Names by part of a network. Hugging Face counts the pooler as part of the encoder.
POOLER = _module(_DENSE, "pooler/dense", "pooler.dense")
MASKED_LM = {
  **_module(_DENSE, "mlm_dense", "cls.predictions.transform.dense"),
  **_module(_NORM, "mlm_norm", "cls.predictions.transform.LayerNorm"),
  "mlm_bias": "cls.predictions.bias",
}
PROJECTION = {  # of a REALM embedder
  **_module(_DENSE, "projection", "cls.dense"),
  **_module(_NORM, "projection_norm", "cls.LayerNorm"),
}
SPANS = {  # of a REALM reader
  **_module(_DENSE, "span_dense", "qa_outputs.dense_intermediate"),
  **_module(_DENSE, "span_score", "qa_outputs.dense_output"),
  **_module(_NORM, "span_norm", "qa_outputs.layer_normalization"),
}
LINEAR_SPANS = _module(_DENSE, "span_score", "qa_outputs")  # of `BertForQuestionAnswering`


def encoder(num_layers: int) -> dict[str, str]:
  """Returns Hugging Face's name for each parameter of `BertEncoder`."""
  names = {
    "word_embedding/embedding": "embeddings.word_embeddings.weight",
    "position_embedding": "embeddings.position_embeddings.weight",
    "segment_embedding": "embeddings.token_type_embeddings.weight",
    **_module(_NORM, "embedding_norm", "embeddings.LayerNorm"),
  }
  for i in range(num_layers):
    here, there = f"layers_{i}", f"encoder.layer.{i}"
    for head in _HEADS:
      names |= _module(_DENSE, f"{here}/attention/{head}", f"{there}.attention.self.{head}")
    names |= _module(_DENSE, f"{here}/attention/output", f"{there}.attention.output.dense")
    names |= _module(_NORM, f"{here}/attention_norm", f"{there}.attention.output.LayerNorm")
    names |= _module(_DENSE, f"{here}/mlp_in", f"{there}.intermediate.dense")
    names |= _module(_DENSE, f"{here}/mlp_out", f"{there}.output.dense")
    names |= _module(_NORM, f"{here}/mlp_norm", f"{there}.output.LayerNorm")
  return names


def prefixed(names: Mapping[str, str], *, here: str = "", there: str = "") -> dict[str, str]:
  """Prepends prefixes to our paths and to their names."""
  return {here + ours: there + theirs for ours, theirs in names.items()}


def shape_there(path: str, shape: tuple[int, ...]) -> tuple[int, ...]:
  """Returns the shape that Hugging Face gives to one of our parameters."""
  *_, module, leaf = ("", *path.split("/"))
  num_outputs = 2 if module in _HEADS else 1
  if leaf == "kernel":
    return (math.prod(shape[-num_outputs:]), math.prod(shape[:-num_outputs]))
  return (math.prod(shape),) if leaf == "bias" else shape


def to_ours(path: str, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
  """Converts an array of Hugging Face's to the shape of our parameter."""
  return (array.T if path.endswith("/kernel") else array).reshape(shape)


def to_theirs(path: str, array: np.ndarray) -> np.ndarray:
  """Converts one of our parameters to Hugging Face's shape."""
  rows, *columns = shape_there(path, array.shape)
  return (
    array.reshape(*columns, rows).T if path.endswith("/kernel") else array.reshape(rows, *columns)
  )


def modernised(names: Iterable[str]) -> dict[str, str]:
  """Returns `{name as in BERT: name}`.

  Older files call the weights of layer norms gamma and beta, RoBERTa the masked-LM head `lm_head`;
  its bias may only be under one of two names.
  """
  found = {}
  for name in names:
    new = name
    for pattern, replacement in _RENAMED:
      new = re.sub(pattern, replacement, new)
    found[new] = name
  for name in [name for name in found if name.endswith("cls.predictions.decoder.bias")]:
    found.setdefault(name.replace(".decoder.", "."), found[name])
  return found


def config_from_json(settings: Mapping, *, name: str, stem: str) -> tuple[bert.BertConfig, int]:
  """Reads Hugging Face's `config.json`.

  Args:
    stem: The prefix of the encoder's weights, which tells the kind if the settings do not.

  Returns:
    The configuration, and the number of position embeddings that precede the first position's.

  Raises:
    ValueError: If a size is missing or the model is not a plain BERT.
  """
  by_stem = stem.split(".")[-2].replace("_", "-") if stem else ""
  by_stem = by_stem if by_stem in _SAME + _ROBERTA else None
  kind = _kind(settings) or by_stem or "bert"
  is_roberta = kind in _ROBERTA
  if by_stem and kind in _SAME + _ROBERTA and is_roberta != (by_stem in _ROBERTA):
    raise ValueError(f"{name} is of type {kind!r}, but its weights are named as in {by_stem!r}")
  if kind not in _SAME + _ROBERTA:
    raise ValueError(
      f"{name} is a model of type {kind!r}, which computes something else than BERT; only "
      f"{', '.join(_SAME + _ROBERTA)} are supported"
    )
  missing = [size for size in _SIZES.values() if size not in settings]
  if missing:
    raise ValueError(f"{name}: config.json lacks {', '.join(missing)}; it is not a BERT's")
  for setting, only in {**_ONLY, "embedding_size": settings["hidden_size"]}.items():
    if (value := settings.get(setting, only)) not in (only, None):
      raise ValueError(f"{name}: {setting}={value!r} in config.json; only {only!r} is supported")
  activation = settings.get("hidden_act", "gelu")
  if activation not in _ACTIVATIONS:
    raise ValueError(
      f"{name}: hidden_act={activation!r} in config.json; only {', '.join(_ACTIVATIONS)} are "
      "supported"
    )
  skipped = settings.get("pad_token_id", 1) + 1 if is_roberta else 0
  sizes = {ours: settings[theirs] for ours, theirs in _SIZES.items()}
  sizes["max_length"] -= skipped
  config = bert.BertConfig(
    **sizes,
    **{ours: settings[theirs] for ours, theirs in _OPTIONAL.items() if theirs in settings},
    activation=_ACTIVATIONS[activation],
  )
  return config, skipped


def _kind(settings: Mapping) -> str | None:
  """Returns the model's type, which older settings only imply by the name of its class."""
  if "model_type" in settings or not settings.get("architectures"):
    return settings.get("model_type")
  name = re.sub(r"(LMHead)?Model$|For[A-Z]\w*$", "", settings["architectures"][0])
  found = {kind.replace("-", ""): kind for kind in _SAME + _ROBERTA}
  return found.get(name.lower(), name)


def config_to_json(config: bert.BertConfig) -> dict:
  """Returns the content of Hugging Face's `config.json` for a BERT."""
  activations = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
  return {
    "model_type": "bert",
    **{theirs: getattr(config, ours) for ours, theirs in {**_SIZES, **_OPTIONAL}.items()},
    "hidden_act": activations[config.activation],
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
  }


def config_from_weights(
  weights: Mapping[str, np.ndarray], prefix: str, *, name: str
) -> bert.BertConfig:
  """Derives the configuration of one of Google's BERTs from the shapes of its weights."""
  layer = f"{prefix}encoder.layer."
  first = f"{layer}0.intermediate.dense.weight"
  names = {
    name: f"{prefix}embeddings.{name}_embeddings.weight"
    for name in ("word", "position", "token_type")
  }
  if missing := [name for name in (*names.values(), first) if name not in weights]:
    raise ValueError(f"{name} has not the weights of a BERT: it lacks {', '.join(missing)}")
  embeddings = {name: weights[theirs].shape for name, theirs in names.items()}
  vocab_size, hidden_size = embeddings["word"]
  return bert.BertConfig(
    vocab_size=vocab_size,
    hidden_size=hidden_size,
    num_layers=len({n.split(".")[layer.count(".")] for n in weights if n.startswith(layer)}),
    num_heads=hidden_size // _HEAD_SIZE,
    mlp_size=weights[first].shape[0],
    max_length=embeddings["position"][0],
    num_segments=embeddings["token_type"][0],
  )
