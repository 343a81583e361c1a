"""BERT's configuration, from Hugging Face's or Google's `config.json` or from the weights."""

import re
from collections.abc import Mapping
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


def from_json(settings: Mapping, *, name: str, stem: str) -> tuple[bert.BertConfig, int]:
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


def to_json(config: bert.BertConfig) -> dict:
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


def from_weights(weights: Mapping[str, np.ndarray], prefix: str, *, name: str) -> bert.BertConfig:
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
