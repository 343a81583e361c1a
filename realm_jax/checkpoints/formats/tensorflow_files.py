"""Reads TensorFlow checkpoints: Google's BERT, TF-Hub modules, fine-tuned ORQA models.

Variables get Hugging Face's names, so both formats share the rest of the code. TF-Hub modules are
nested, each under one more `module/`; the embedder is the innermost. TensorFlow is imported when
there is something to read.
"""

import os
import pathlib
import re
from collections.abc import Iterable

import numpy as np

from realm_jax.checkpoints.formats.huggingface_files import Source, read_optional_json

_FOLDERS = ("", "variables", os.path.join("export", "best_default", "checkpoint"))
_CONFIG_FILE = "bert_config.json"
_MODULE_FILE = "saved_model.pb"
# Variables of the optimizer and of the run.
_SKIPPED = re.compile(r"(^|/)(adam_[mv]|AdamWeightDecayOptimizer(_\d+)?|global_step)(/|$)")
_EMBEDDER = re.compile(r"^(module/)+(?=(bert|cls|dense|LayerNorm|layer_normalization)/)")
_READER = re.compile(r"^reader/(module/)*")
_READER_HEADS = {
  "dense": "qa_outputs.dense_intermediate",
  "dense_1": "qa_outputs.dense_output",
  "layer_normalization": "qa_outputs.layer_normalization",
}
_EMBEDDER_HEADS = {
  "dense": "cls.dense",
  "LayerNorm": "cls.LayerNorm",
  "layer_normalization": "cls.LayerNorm",
}
_LEAVES = {
  "kernel": "weight",
  "gamma": "weight",
  "output_weights": "weight",
  "beta": "bias",
  "output_bias": "bias",
}
_KERAS_EPSILON = 1e-3


def is_checkpoint(path: str) -> bool:
  """Returns whether a path is a TensorFlow checkpoint, or a directory with one."""
  return _prefix(path) is not None


def read(path: str) -> Source:
  """Reads a checkpoint, given its prefix or a directory with one."""
  prefix = _prefix(path)
  if prefix is None:
    raise ValueError(f"no TensorFlow checkpoint in {path}; it should have a file *.index")
  import tensorflow as tf

  reader = tf.train.load_checkpoint(prefix)
  variables = [n for n in reader.get_variable_to_shape_map() if not _SKIPPED.search(n)]
  weights = {}
  for name in variables:
    array = reader.get_tensor(name)
    weights[huggingface_name(name)] = array.T if name.endswith("/kernel") else array
  directory = path if os.path.isdir(path) else os.path.dirname(path)
  keras = any(re.match(r"(module/)+layer_normalization/", name) for name in variables)
  return Source(
    name=path,
    weights=weights,
    settings=_settings(directory),
    # The public code uses Keras's layer norm, the released embedders an older one with BERT's
    # epsilon.
    projection_epsilon=_KERAS_EPSILON if keras else None,
  )


def read_matrix(path: str, name: str) -> np.ndarray:
  """Returns one variable of a checkpoint."""
  import tensorflow as tf

  prefix = _prefix(path)
  reader = None if prefix is None else tf.train.load_checkpoint(prefix)
  if reader is None or not reader.has_tensor(name):
    raise ValueError(f"no variable {name} in a TensorFlow checkpoint at {path}")
  return reader.get_tensor(name)


def huggingface_name(variable: str) -> str:
  """Returns Hugging Face's name of a variable of a released checkpoint.

  Names of an embedder get the prefix "embedder.", those of a fine-tuned reader "reader.".
  """
  prefix, heads, rest = "", {}, variable
  if _EMBEDDER.match(variable):
    prefix, heads, rest = "embedder.", _EMBEDDER_HEADS, _EMBEDDER.sub("", variable)
  elif _READER.match(variable):
    prefix, heads, rest = "reader.", _READER_HEADS, _READER.sub("", variable)
  first, *middle = re.sub(r"layer_(\d+)", r"layer.\1", rest).split("/")
  parts = [heads.get(first, first), *middle]
  if parts[-1].endswith("_embeddings"):
    parts.append("weight")
  parts[-1] = _LEAVES.get(parts[-1], parts[-1])
  return prefix + ".".join(parts)


def lower_case(path: str) -> bool | None:
  """Returns the casing that a TF-Hub module declares; None without a module."""
  file = os.path.join(path, _MODULE_FILE)
  if not os.path.exists(file):
    return None
  import tensorflow as tf
  from tensorflow.core.protobuf import saved_model_pb2

  module = saved_model_pb2.SavedModel.FromString(pathlib.Path(file).read_bytes())
  for graph in module.meta_graphs:
    constants = {node.name: node for node in graph.graph_def.node if node.op == "Const"}
    for signature in graph.signature_def.values():
      output = signature.outputs.get("do_lower_case")
      node = constants.get(output.name.partition(":")[0]) if output is not None else None
      if node is not None:
        return bool(tf.make_ndarray(node.attr["value"].tensor))
  return None


def _settings(directory: str) -> dict:
  settings = read_optional_json(directory, _CONFIG_FILE)
  if settings.get("hidden_act") == "gelu":
    settings["hidden_act"] = "gelu_new"  # Google's code computes it under this name
  return settings


def _prefix(path: str) -> str | None:
  if os.path.exists(f"{path}.index"):
    return path
  for folder in _FOLDERS:
    directory = os.path.join(path, folder)
    files = os.listdir(directory) if os.path.isdir(directory) else []
    prefixes = [file.removesuffix(".index") for file in files if file.endswith(".index")]
    if prefixes:
      # The checkpoint of the last step.
      return os.path.join(directory, max(prefixes, key=_step))
  return None


def _step(prefix: str) -> tuple[int, str]:
  number = re.search(r"-(\d+)$", prefix)
  return (int(number[1]) if number else -1, prefix)


def read_records(path: str) -> Iterable[bytes]:
  """Returns the records of a TFRecord file in order, `.tfr` or `.tfr.gz`."""
  import tensorflow as tf

  if not os.path.exists(path):
    raise FileNotFoundError(f"no records at {path}")
  compression = "GZIP" if path.endswith(".gz") else ""
  return tf.data.TFRecordDataset(path, compression_type=compression).as_numpy_iterator()
