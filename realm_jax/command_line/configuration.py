"""The configuration of a job: gin files, then gin bindings, then plain flags; later ones win.

Only this module knows gin. A configuration (a frozen dataclass that is a keyword of a job or a
field of another configuration) is a gin reference in the scope of its path:
`--model.bert.num_layers=4` binds `num_layers` in the scope `model/bert`.
"""

import contextlib
import copy
import dataclasses
import inspect
import io
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gin
import gin.config

from realm_jax.command_line import flags
from realm_jax.command_line.flags import UsageError, refuse_missing
from realm_jax.foundations import atomic_files, text_files

_DYNAMIC = "from __gin__ import dynamic_registration\n"

gin.add_config_file_search_path(str(pathlib.Path(__file__).resolve().parents[1]))  # contains gin/


def _open(path: str) -> io.StringIO:
  file = io.StringIO(text_files.decoded(pathlib.Path(path).read_bytes(), path))
  setattr(file, "name", path)  # noqa: B010, which gin names in its messages
  return file


# Gin's own log an error for every folder without the file, and know no byte order mark.
_readers: list = gin.config._FILE_READERS
_readers[:] = [(_open, os.path.isfile)]


def configure(
  job: Callable[..., Any],
  *,
  gin_files: Sequence[str] = (),
  bindings: Sequence[str] = (),
  values: Mapping[str, Any],
) -> None:
  """Fills gin with the files, then the bindings, then the plain values, and locks it.

  Args:
    job: The function that the values are for.
    gin_files: Files to parse; later ones win.
    bindings: Gin bindings such as `OptimizerConfig.learning_rate=1e-3`.
    values: Values of the job's keywords, and of the fields of its configurations, by their dotted
      names.

  Raises:
    UsageError: If a file, a binding or a name is wrong.
  """
  gin.clear_config()
  # Only a mention registers a function; the mention itself is not part of the configuration.
  for number, function in enumerate([job, *flags.configs(job)]):
    gin.parse_config(f"{_DYNAMIC}{_import(function)}MENTIONED_{number} = @{_name(function)}")
  gin.clear_config()
  gin.parse_config(_DYNAMIC + _import(job))
  named = set()
  for gin_file in gin_files:
    with _as_usage_error(f"{gin_file}: "):
      gin.parse_config_file(gin_file)
    named |= _scopes_of_references()
  for binding in bindings:
    with _as_usage_error(f"--gin.{binding}: "):
      gin.parse_config(binding)
  with _as_usage_error():
    _refuse_unset_macros()
    _wire(job, values=values)
    _refuse_unread_scopes(named)
    gin.finalize()


def _wire(
  function: Callable[..., Any],
  *,
  scopes: tuple[str, ...] = (),
  path: tuple[str, ...] = (),
  default: Any = None,
  values: Mapping[str, Any],
) -> None:
  """Gives every configuration among a function's keywords its own gin scope.

  A flag thus sets only the field that it names, while a gin binding without a scope applies to all.

  Args:
    function: A job, or the class of a configuration.
    scopes: Scopes that `function` is called in; they end with `path`.
    path: Names of the keywords that lead to `function`.
    default: The default configuration at this path; None for the job.
    values: Values by their dotted names.
  """
  selector, scope = f"{function.__module__}.{function.__qualname__}", "/".join(scopes)
  with gin.config_scope(scope or None):
    bound = gin.get_bindings(function, resolve_references=False)
  for keyword in flags.keywords(function, instance=default):
    here = (*path, keyword.name)
    name = ".".join(here)
    flagged = any(f"{value}.".startswith(f"{name}.") for value in values)
    value = bound.get(keyword.name, keyword.default)
    if keyword.config is None:
      # Fields in which a job's default differs from its class are bound as well.
      if flagged or (keyword.overridden and keyword.name not in bound):
        gin.bind_parameter((scope, selector, keyword.name), values.get(name, keyword.default))
      elif keyword.plain and keyword.name in bound and not _is_call(value):
        given = copy.deepcopy(value)  # of a macro
        if (checked := keyword.checked(given)) != given:
          at = (scope, selector, keyword.name)
          if isinstance(value, gin.config.ConfigurableReference):
            at = ("/".join(value.scopes), "gin.macro", "value")
          gin.bind_parameter(at, checked)
      continue
    config, base = keyword.config, scopes[: len(scopes) - len(path)]
    if isinstance(value, gin.config.ConfigurableReference) and value.configurable is not None:
      config, base = value.configurable.wrapped, tuple(value.scopes) or base
      kind = flags.without_none(keyword.annotation)
      if isinstance(config, type) and not issubclass(config, kind):  # it might contain itself
        raise ValueError(f"{name}={value!r}; give an object of the class {kind.__name__}")
    elif value is None and not flagged:
      continue
    elif value is not None and keyword.name in bound:
      config = None
    if not isinstance(config, type) or not dataclasses.is_dataclass(config):
      config = None
    fields = {f.name for f in dataclasses.fields(config)} if config is not None else set()
    inside = (given.removeprefix(f"{name}.") for given in values if given.startswith(f"{name}."))
    if wrong := {field.partition(".")[0] for field in inside} - fields:
      names = ", ".join(sorted(wrong))
      raise ValueError(f"{names} of {name} cannot be set, gin binds it to {value!r}")
    if config is None or not fields:
      continue
    inner = base if base[-len(here) :] == here else (*base, *here)
    named = "/".join((*inner, f"{config.__module__}.{config.__qualname__}"))
    # Not by gin's short names, which two modules may share.
    reference = gin.config.ConfigurableReference(named, evaluate=True)
    gin.bind_parameter((scope, selector, keyword.name), reference)
    chosen = keyword.default if isinstance(keyword.default, config) else None
    _wire(config, scopes=inner, path=here, default=chosen, values=values)


def _scopes_of_references() -> set[str]:
  references = gin.config.iterate_references(gin.config._CONFIG)
  return {name for reference in references for name in reference.scopes}


def _refuse_unread_scopes(named: set[str]) -> None:
  """Raises ValueError for a binding in a scope that neither a reference nor a keyword names.

  Args:
    named: Scopes of references in the files, also of those that a binding has replaced.
  """
  config, known = gin.config._CONFIG, named | _scopes_of_references()
  for _, selector in config:
    function = gin.config._REGISTRY[selector].wrapped
    if function.__module__.partition(".")[0] != "gin":
      known |= {keyword.name for keyword in flags.keywords(function)}
  for scope, selector in config:
    if selector != "gin.macro" and (unread := set(filter(None, scope.split("/"))) - known):
      name = min(unread)
      raise ValueError(
        f"{scope}/{selector} is bound, but nothing is called in the scope {name}"
        f"{flags.nearest(name, known)}"
      )


def _is_call(value: Any) -> bool:
  """Returns whether a bound value is a reference other than a macro."""
  reference = gin.config.ConfigurableReference
  return isinstance(value, reference) and getattr(value.configurable, "name", "") != "macro"


def _import(function: Callable[..., Any]) -> str:
  """Returns the gin statement that imports a function's module."""
  package, _, module = function.__module__.rpartition(".")
  return f"from {package} import {module}\n" if package else f"import {module}\n"


def _name(function: Callable[..., Any]) -> str:
  return f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"


def directory(
  job: Callable[..., Any],
  keywords: Sequence[flags.Keyword],
  names: Sequence[str] = ("workdir", "index"),
) -> str | None:
  """Returns the configured directory of a job, the first of these keywords that is given."""
  values = {k.name: k.default for k in keywords if k.default is not flags.REQUIRED}
  values.update(gin.get_bindings(job, resolve_references=False))
  # A macro becomes its value when copied.
  return next((copy.deepcopy(values[name]) for name in names if values.get(name)), None)


def run(name: str, job: Callable[..., Any], keywords: Sequence[flags.Keyword]) -> int:
  """Runs a job as configured, writes the configuration to its `workdir`; returns its exit code."""
  bound = gin.get_bindings(job, resolve_references=False)
  refuse_missing(name, keywords, bound)
  with _as_usage_error():  # before anything is written
    arguments = gin.get_bindings(job)
    for keyword in keywords:
      if keyword.name in arguments:
        keyword.checked(arguments[keyword.name])
  workdir = directory(job, keywords, ("workdir",))
  with contextlib.ExitStack() as stack:
    if workdir:
      # Late, because the list of jobs must not wait for them.
      from realm_jax.devices import directory_lock
      from realm_jax.foundations import object_store

      # That of a job which keeps nothing else there.
      module = inspect.getmodule(inspect.unwrap(job))
      kind = getattr(module, "WORKDIR_KIND", directory_lock.WORKDIR)
      stack.enter_context(directory_lock.hold_for_job(workdir, kind=kind))
      file = object_store.absolute(os.path.join(workdir, f"{name}_config.gin"))
      before = file.read_text() if file.exists() else None
      atomic_files.write_text(str(file), gin.config_str(max_line_length=100))
    try:
      code = gin.get_configurable(job)()
    except Exception as error:
      if workdir and before is not None and isinstance(error, (ValueError, FileNotFoundError)):
        atomic_files.write_text(str(file), before)  # of the run that refused this one
      raise
    if workdir:
      text = gin.operative_config_str(max_line_length=100)
      atomic_files.write_text(os.path.join(workdir, f"{name}_operative_config.gin"), text)
  return code if isinstance(code, int) else 0  # some jobs return their result


def _macros(config: Mapping[tuple[str, str], Mapping[str, Any]]) -> tuple[set[str], set[str]]:
  """Returns the names of the macros that are set, and of those that are used."""
  references = gin.config.iterate_references(config, to=gin.get_configurable("gin.macro"))
  used = {"/".join(reference.scopes) for reference in references}
  return {name for name, selector in config if selector == "gin.macro"}, used


def _refuse_unset_macros() -> None:
  """Raises ValueError if a macro is used but not set, before its value is asked for."""
  known, used = _macros(gin.config._CONFIG)
  if unset := min(used - known, default=""):
    raise ValueError(f"%{unset} is used, but {unset} is not set{flags.nearest(unset, known)}")


@gin.config.register_finalize_hook
def _refuse_unused_macros(config: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
  """Raises ValueError if a macro is set but unused; most likely its name is mistyped."""
  known, used = _macros(config)
  if unused := min(known - used, default=""):
    raise ValueError(f"{unused} is set but nothing uses %{unused}{flags.nearest(unused, used)}")


@contextlib.contextmanager
def _as_usage_error(prefix: str = "") -> Iterator[None]:
  try:
    yield
  except Exception as error:
    message, *_ = str(error).partition(" in config string")  # gin quotes the whole of it
    raise UsageError(prefix + message) from error
