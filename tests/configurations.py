"""Configurations with a few fields changed, as a command line changes them."""

import dataclasses

from realm_jax.command_line import flags
from realm_jax.models.bert import BertConfig


def changed(config, **fields):
  """Returns a configuration with fields changed, each named by its shortest unambiguous ending."""
  for name, value in fields.items():
    (path,) = flags.matching_flags(name.replace("__", "."), list(_paths(config)))
    config = _replaced(config, path.split("."), value)
  return config


def names(config):
  """Returns what `changed` may change."""
  paths = [path.split(".") for path in _paths(config)]
  endings = {".".join(path[first:]) for path in paths for first in range(len(path))}
  known = list(_paths(config))
  return {e.replace(".", "__") for e in endings if len(flags.matching_flags(e, known)) == 1}


def _paths(config, prefix=""):
  for field in dataclasses.fields(config):
    yield prefix + field.name
    value = getattr(config, field.name)
    if dataclasses.is_dataclass(value):
      yield from _paths(value, f"{prefix}{field.name}.")


def _replaced(config, path, value):
  first, *rest = path
  inner = _replaced(getattr(config, first), rest, value) if rest else value
  return dataclasses.replace(config, **{first: inner})


def tiny_bert(**fields):
  """Returns a BERT of one narrow layer that computes in float32.

  It drops attention probabilities alone: elsewhere, dropout doubles what a training compiles.
  """
  sizes = {"vocab_size": 11, "hidden_size": 8, "num_layers": 1, "num_heads": 2, "mlp_size": 12}
  return BertConfig(
    **{"dtype": "float32", "dropout_rate": 0.0, "max_length": 12, **sizes, **fields}
  )
