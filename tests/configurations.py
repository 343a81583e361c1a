"""Configurations with a few fields changed, as a command line changes them."""

import dataclasses

from realm_jax import flags


def changed(config, **fields):
  """Returns a configuration with fields changed, each named by its shortest unambiguous ending."""
  for name, value in fields.items():
    (path,) = flags.spellings(list(_paths(config)))[name.replace("__", ".")]
    config = _replaced(config, path.split("."), value)
  return config


def names(config):
  """Returns what `changed` may change."""
  return {
    ending.replace(".", "__")
    for ending, paths in flags.spellings(list(_paths(config))).items()
    if len(paths) == 1
  }


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
