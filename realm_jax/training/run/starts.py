"""Where a new run takes its parameters from: checkpoints, and which of their parts."""

import dataclasses
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

import flax.traverse_util
import jax.numpy as jnp
from absl import logging

from realm_jax.checkpoints import orbax_files, saved_models
from realm_jax.foundations import choices
from realm_jax.models.bert import BertConfig

# As a job takes them: each in a flag of its own, because a directory may have commas.
Starts = Annotated[Sequence[str], choices.WHOLE]
_PART = r"[A-Za-z_]\w*(?:/\w+)*"
_TEXT = re.compile(rf"(.+?)(?::({_PART})(?:=({_PART}))?)?", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Start:
  """Initial parameters from a checkpoint.

  Attributes:
    checkpoints: Directory of checkpoints; the newest is used.
    parts: Pairs of a path in this model's parameters and one in the checkpoint's, joined by "/".
  """

  checkpoints: str
  parts: Sequence[tuple[str, str]]


def read(texts: Starts, *, parts: Sequence[str]) -> tuple[Start, ...]:
  """Returns the starts that a job was given.

  Args:
    texts: `CHECKPOINTS` for all parts that the model and they have, `CHECKPOINTS:PART`, or
      `CHECKPOINTS:PART=OTHER` for a part that they have under another name.
    parts: The parts of the model.

  Raises:
    FileNotFoundError: If there is no checkpoint.
    ValueError: If a checkpoint or the model lacks a part, or a part is given twice.
  """
  found = []
  for text, directory, part, other in _split(texts, parts):
    saved = _saved(orbax_files.resolve(directory))
    has = dict.fromkeys(name.partition("/")[0] for name in saved)
    taken = [(part, other or part)] if part else [(each, each) for each in parts if each in has]
    if not taken or not any(_below(name, taken[0][1]) for name in saved):
      wanted = f"no {other or part}" if part else f"none of {', '.join(parts)}"
      raise ValueError(f"start={text}: the checkpoint has {wanted}, but {', '.join(has)}")
    found.append(Start(directory, taken))
  _check_distinct([(part, start.checkpoints) for start in found for part, _ in start.parts])
  return tuple(found)


def sources(texts: Starts, *, parts: Sequence[str]) -> dict[str, str]:
  """Returns the checkpoints that each part of a model begins with, where all are needed.

  Raises:
    ValueError: If a part is unknown, missing, or given twice.
  """
  found = []
  for text, directory, part, other in _split(texts, parts):
    if other or part not in (None, *parts):
      raise ValueError(f"start={text}: give CHECKPOINTS:PART with {' or '.join(parts)}")
    found += [(each, directory) for each in ([part] if part else parts)]
  _check_distinct(found)
  if missing := [part for part in parts if part not in dict(found)]:
    raise ValueError(f"nothing to start {missing[0]} from; give --start=CHECKPOINTS:{missing[0]}")
  return dict(found)


def _split(
  texts: Starts, parts: Sequence[str]
) -> Iterator[tuple[str, str, str | None, str | None]]:
  """Yields each text, its directory, its part, and the part's other name."""
  for text in [texts] if isinstance(texts, str) else texts:
    match = _TEXT.fullmatch(text)
    if match is None:
      raise ValueError("start is empty; give CHECKPOINTS or CHECKPOINTS:PART, or leave it out")
    directory, part, other = match.groups()
    if part and part.partition("/")[0] not in parts:
      raise ValueError(f"start={text}: this model has no {part}, but {', '.join(parts)}")
    yield text, directory, part, other


def _check_distinct(given: Sequence[tuple[str, str]]) -> None:
  """Checks that no part is given twice, or within another."""
  for (one, source), (other, directory) in itertools.combinations(given, 2):
    if _below(one, other) or _below(other, one):
      raise ValueError(
        f"{one} would be taken from {source}, and {other} from {directory}; name the part that "
        f"each is for, such as --start={source}:{one}"
      )


def begun(params: dict, abstract_params: dict, starts: Iterable[Start]) -> dict:
  """Replaces parts of the parameters with those of checkpoints; warns of what else these have."""
  flat: dict[str, Any] = flax.traverse_util.flatten_dict(params, sep="/")
  abstract = flax.traverse_util.flatten_dict(abstract_params, sep="/")
  for start in starts:
    wanted, path = dict(_wanted(start, [*flat])), orbax_files.resolve(start.checkpoints)
    parts = [there for _, there in start.parts]
    others = {name for name in _saved(path) if any(_below(name, part) for part in parts)}
    if others := sorted(others.difference(wanted.values())):
      logging.warning(
        "start=%s has %d parameters in %s that this model has no place for, such as %s",
        start.checkpoints,
        len(others),
        ", ".join(parts),
        others[0],
      )
    restored = orbax_files.restore_params(
      path,
      flax.traverse_util.unflatten_dict({wanted[n]: abstract[n] for n in wanted}, sep="/"),
    )
    saved: dict[str, Any] = flax.traverse_util.flatten_dict(restored, sep="/")
    # Copies, because two places may take the same array and the state's buffers are donated.
    flat.update({name: jnp.copy(saved[source]) for name, source in wanted.items()})
  return flax.traverse_util.unflatten_dict(flat, sep="/")


def configured(starts: Iterable[Start], **configs: Any) -> dict[str, Any]:
  """Returns the configurations of a model's parts, by part, with what its starts bring.

  Settings that models from elsewhere bring, such as a pooling, are those of the checkpoint unless
  they were set.
  """
  for start in starts:
    description = saved_models.load(start.checkpoints).description
    for here, there in start.parts:
      part = here.partition("/")[0]
      own, saved = configs[part], getattr(description, there.partition("/")[0])
      configs[part] = _brought(own, saved, bert_only=here.endswith("/bert"))
      if changes := _changes(own, configs[part]):
        logging.info("%s is as in %s: %s", part, start.checkpoints, ", ".join(changes))
  return configs


def _brought(own: Any, saved: Any, *, bert_only: bool) -> Any:
  """Returns a configuration with the settings that another, or its BERT, brings."""
  values = {}
  if bert_only:
    saved = getattr(saved, "bert", saved)
    if (bert := getattr(own, "bert", None)) is not None:
      return dataclasses.replace(own, bert=_brought(bert, saved, bert_only=True))
  if not isinstance(own, type(saved)):
    return own
  for field in dataclasses.fields(saved):
    mine, theirs = getattr(own, field.name), getattr(saved, field.name)
    if isinstance(theirs, BertConfig):
      values[field.name] = _brought(mine, theirs, bert_only=True)
    elif mine == field.default and field.name in choices.imported(type(saved)):
      values[field.name] = theirs
  return dataclasses.replace(own, **values)


def _changes(before: Any, after: Any) -> list[str]:
  old, new = (
    flax.traverse_util.flatten_dict(dataclasses.asdict(each), sep=".") for each in (before, after)
  )
  return [f"{name}={value}" for name, value in new.items() if value != old[name]]


def _wanted(start: Start, names: Sequence[str]) -> Iterator[tuple[str, str]]:
  """Yields the names of parameters that a start has, here and in its checkpoint."""
  for here, there in start.parts:
    found = [name for name in names if _below(name, here)]
    if "/" in here and not found:  # an encoder may be without parameters
      raise ValueError(f"start={start.checkpoints}:{here}: this model has no {here}")
    for name in found:
      yield name, there + name.removeprefix(here)


def _saved(path: str | os.PathLike) -> list[str]:
  """Returns the names of the parameters of a checkpoint."""
  return ["/".join(keys[1:]) for keys in orbax_files.saved_arrays(path) if keys[0] == "params"]


def _below(name: str, part: str) -> bool:
  return f"{name}/".startswith(f"{part}/")
