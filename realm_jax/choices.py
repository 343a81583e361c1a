"""Checks settings that are one of several strings, typed as `Literal`."""

import typing


def check_fields(config) -> None:
  """Checks the `Literal` fields of a dataclass; meant for its `__post_init__`.

  Raises:
    ValueError: If a field has another value; the message names the field, value and choices.
  """
  for name, annotation in typing.get_type_hints(type(config)).items():
    if typing.get_origin(annotation) is typing.Literal:
      check(annotation, **{name: getattr(config, name)})


def check(choices, **settings: str) -> None:
  """Checks that settings are among the choices of a `Literal` type.

  Raises:
    ValueError: If a setting has another value; the message names the setting, value and choices.
  """
  known = typing.get_args(choices)
  for name, value in settings.items():
    if value not in known:
      raise ValueError(f"{name}={value!r}; choose one of {', '.join(known)}")
