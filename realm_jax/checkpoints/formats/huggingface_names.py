"""Hugging Face's names for our parameters in BERT and REALM, and conversion of the arrays.

Hugging Face transposes dense kernels and merges the axis of heads with the width of a head. Our
paths are joined by "/".
"""

import math
import re
from collections.abc import Iterable, Mapping

import numpy as np

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


def pooler() -> dict[str, str]:
  """Returns the names of `BertPooler`, which Hugging Face counts as part of the encoder."""
  return _module(_DENSE, "pooler/dense", "pooler.dense")


def masked_lm() -> dict[str, str]:
  """Returns the names of the masked-LM head."""
  return {
    **_module(_DENSE, "mlm_dense", "cls.predictions.transform.dense"),
    **_module(_NORM, "mlm_norm", "cls.predictions.transform.LayerNorm"),
    "mlm_bias": "cls.predictions.bias",
  }


def projection() -> dict[str, str]:
  """Returns the names of a REALM embedder's projection."""
  return {
    **_module(_DENSE, "projection", "cls.dense"),
    **_module(_NORM, "projection_norm", "cls.LayerNorm"),
  }


def spans() -> dict[str, str]:
  """Returns the names of a REALM reader's span scorer."""
  return {
    **_module(_DENSE, "span_dense", "qa_outputs.dense_intermediate"),
    **_module(_DENSE, "span_score", "qa_outputs.dense_output"),
    **_module(_NORM, "span_norm", "qa_outputs.layer_normalization"),
  }


def linear_spans() -> dict[str, str]:
  """Returns the names of the span scorer of `BertForQuestionAnswering`."""
  return _module(_DENSE, "span_score", "qa_outputs")


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


def _module(pairs, here: str, there: str) -> dict[str, str]:
  return {f"{here}/{ours}": f"{there}.{theirs}" for ours, theirs in pairs}
