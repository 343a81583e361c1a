"""BERT's configuration, from Hugging Face's or Google's `config.json` or from the weights."""

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


def from_json(settings: Mapping) -> bert.BertConfig:
  """Reads Hugging Face's `config.json`.

  Raises:
    ValueError: If a size is missing or the model is not a plain BERT.
  """
  missing = [name for name in _SIZES.values() if name not in settings]
  if missing:
    raise ValueError(f"config.json lacks {', '.join(missing)}; it is not a BERT's")
  for name, expected in (("position_embedding_type", "absolute"), ("is_decoder", False)):
    if settings.get(name, expected) != expected:
      raise ValueError(f"{name}={settings[name]!r} in config.json; only {expected!r} is supported")
  activation = settings.get("hidden_act", "gelu")
  if activation not in _ACTIVATIONS:
    raise ValueError(
      f"hidden_act={activation!r} in config.json; only {', '.join(_ACTIVATIONS)} are supported"
    )
  return bert.BertConfig(
    **{ours: settings[theirs] for ours, theirs in _SIZES.items()},
    **{ours: settings[theirs] for ours, theirs in _OPTIONAL.items() if theirs in settings},
    activation=_ACTIVATIONS[activation],
  )


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


def from_weights(weights: Mapping[str, np.ndarray], prefix: str) -> bert.BertConfig:
  """Derives the configuration of one of Google's BERTs from the shapes of its weights."""
  embeddings = {
    name: weights[f"{prefix}embeddings.{name}_embeddings.weight"].shape
    for name in ("word", "position", "token_type")
  }
  vocab_size, hidden_size = embeddings["word"]
  layer = f"{prefix}encoder.layer."
  return bert.BertConfig(
    vocab_size=vocab_size,
    hidden_size=hidden_size,
    num_layers=len({n.split(".")[layer.count(".")] for n in weights if n.startswith(layer)}),
    num_heads=hidden_size // _HEAD_SIZE,
    mlp_size=weights[f"{layer}0.intermediate.dense.weight"].shape[0],
    max_length=embeddings["position"][0],
    num_segments=embeddings["token_type"][0],
  )
