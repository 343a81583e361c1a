"""Checks settings that are one of several strings, typed as `Literal`, and counts."""

import typing


def check_fields(config) -> None:
  """Checks the `Literal` fields of a dataclass; meant for its `__post_init__`."""
  for name, annotation in typing.get_type_hints(type(config)).items():
    if typing.get_origin(annotation) is typing.Literal:
      check(annotation, **{name: getattr(config, name)})


def check(choices, **settings: str) -> None:
  """Checks that settings are among the choices of a `Literal` type."""
  known = typing.get_args(choices)
  for name, value in settings.items():
    if value not in known:
      raise ValueError(f"{name}={value!r}; choose one of {', '.join(known)}")


def check_counts(config, *names: str, least: int = 1) -> None:
  """Checks that fields of a dataclass are at least some number; None stands for a default."""
  for name in names:
    value = getattr(config, name)
    if value is not None and value < least:
      raise ValueError(f"{name}={value}; give at least {least}")
