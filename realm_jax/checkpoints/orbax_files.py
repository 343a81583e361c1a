"""Checkpoints of state, data position and batch in flight, written atomically by Orbax.

The checkpoint of step s determines step s+1: it has the state, the position of the input pipeline,
and the batch already retrieved for the next step. A resumed run continues with that batch, so its
losses equal those of an uninterrupted run. It has a digest of every file, compared before it is
read.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import math
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import google_crc32c
import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from realm_jax.devices import processes
from realm_jax.foundations import object_store, text_files

_STATE, _INPUT, _METADATA = "state", "input", "metadata"
_CONTENT, _DIGESTS = f"{_METADATA}/metadata", f"{_METADATA}/digests"
_STEPS = ocp.step.standard_name_format()
_BLOCK = 8 << 20  # bytes of a file that are read at once
_LOG = logging.getLogger("absl")

BEST = "best"  # the directory of a run's best checkpoint, within that of the run

# Replicas share the writing of an array by slicing it: with small slices that takes longer than the
# writing, and compiles a program for each shape and slice.
_SMALLEST_SLICE = 1 << 20  # bytes


def _slice_only_large_arrays() -> None:
  """Replaces Orbax's handler of arrays, without its warning that there was one."""
  handler = ocp.type_handlers.ArrayHandler(min_slice_bytes_for_replica_parallel=_SMALLEST_SLICE)
  before, _LOG.disabled = _LOG.disabled, True
  ocp.type_handlers.register_type_handler(jax.Array, handler, override=True)
  _LOG.disabled = before


_slice_only_large_arrays()


class DamagedCheckpointError(ValueError):
  """A checkpoint differs from what was written."""


class OtherOptimizerError(ValueError):
  """A checkpoint has the parameters of a model, but the state of another optimizer."""


class _MetadataHandler(ocp.JsonCheckpointHandler):
  """Writes digests of all items beside the metadata, because Orbax completes it last."""

  def finalize(self, directory: object_store.Path) -> None:
    root = directory.parent
    files = [file for item in (_STATE, _INPUT) for file in _files(root / item)]
    digests = {file.relative_to(root).as_posix(): _crc32c(file) for file in files}
    digests[_CONTENT] = _crc32c(directory / os.path.basename(_CONTENT))
    (directory / os.path.basename(_DIGESTS)).write_text(json.dumps(digests))


@ocp.args.register_with_handler(_MetadataHandler, for_save=True)
class _SaveMetadata(ocp.args.JsonSave):
  """The JSON values to save."""


@ocp.args.register_with_handler(_MetadataHandler, for_restore=True)
class _RestoreMetadata(ocp.args.JsonRestore):
  """Restores JSON values."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """Identifies a run, to tell its checkpoints and generations from those of other runs.

  Attributes:
    name: Random name, drawn when the run begins and written into every checkpoint.
  """

  name: str
  checkpoints: str

  def has_reached(self, step: int) -> bool:
    """Returns whether there is a checkpoint of this step or a later one."""
    return step <= max(steps(self.checkpoints), default=-1)


def run_of(directory: str) -> Run:
  """Returns the run whose checkpoints are in a directory, or a new run if there are none."""
  metadata = read_metadata(resolve(directory)) if steps(directory) else {}
  new = processes.share(uuid.uuid4().hex[:12])[0]
  return Run(name=metadata.get("run", new), checkpoints=directory)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """A restored checkpoint.

  Attributes:
    input: Numpy trees of the data position and the batch in flight; empty before the first batch.
    metadata: JSON values such as the generation in use, corpus fingerprint and vocabulary.
  """

  state: Any
  input: dict
  metadata: dict


class Checkpointer(contextlib.AbstractContextManager["Checkpointer"]):
  """Writes and reads the checkpoints of one run, local or `gs://`; use as a context manager.

  Attributes:
    protected: Steps that are kept besides the newest ones; the same in all processes.
  """

  def __init__(self, directory: str | os.PathLike, *, keep: int = 5):
    self.directory = object_store.absolute(directory)
    self.protected: set[int] = set()
    self._keep = keep
    self._manager = ocp.CheckpointManager(
      self.directory,
      item_handlers={  # completed in this order
        _STATE: ocp.StandardCheckpointHandler(),
        _INPUT: ocp.StandardCheckpointHandler(),
        _METADATA: _MetadataHandler(),
      },
      options=ocp.CheckpointManagerOptions(
        preservation_policy=self, enable_async_checkpointing=True, cleanup_tmp_directories=True
      ),
    )

  def __exit__(self, *_):
    self.close()

  def close(self) -> None:
    """Waits for the checkpoint being written, then closes."""
    self._manager.close()

  def should_preserve(self, checkpoints: Sequence, *, context) -> list[bool]:
    """Returns which checkpoints stay; what Orbax asks its preservation policy."""
    del context
    first_kept = len(checkpoints) - self._keep
    return [i >= first_kept or c.step in self.protected for i, c in enumerate(checkpoints)]

  def latest_step(self) -> int | None:
    """Returns the step of the newest finished checkpoint."""
    return self._manager.latest_step()

  def save(self, step: int, state, *, input: dict, metadata: dict) -> None:
    """Starts writing a checkpoint unless the step has one; returns once arrays are copied.

    Raises:
      ValueError: If the state has values that are not finite.
    """
    if not all_finite(state):
      raise ValueError(f"step {step} has values that are not finite, so it is not saved")
    items = {_STATE: ocp.args.StandardSave(state), _METADATA: _SaveMetadata(metadata)}
    if input:  # Orbax takes no empty tree
      items[_INPUT] = ocp.args.StandardSave(input)
    with processes.saving():
      self._manager.save(step, args=ocp.args.Composite(**items))

  def replace(self, step: int, state, *, metadata: dict) -> None:
    """Writes a checkpoint in place of those of this step and later ones, and waits for it.

    Orbax saves nothing at or before its newest step.
    """
    for later in [found for found in self._manager.all_steps() if found >= step]:
      self._manager.delete(later)
    self.save(step, state, input={}, metadata=metadata)
    self.wait()

  def wait(self) -> None:
    """Waits until the checkpoint being written is on disk."""
    self._manager.wait_until_finished()

  def restore(self, abstract_state) -> Checkpoint | None:
    """Restores the newest checkpoint with the abstract state's shardings; None if there is none.

    Raises:
      DamagedCheckpointError: If it is damaged; the message says where to resume instead.
      ValueError: If the checkpoint's arrays differ from those of the abstract state.
    """
    step = self.latest_step()
    if step is None:
      return None
    path = self.directory / str(step)
    # Each process may have read something else.
    if fault := next(filter(None, processes.share(_fault(path))), ""):
      before = [found for found in steps(self.directory) if found < step]
      intact = first_intact(self.directory, before[::-1])
      way_out = "none before it is intact: begin again in another workdir"
      if intact is not None:
        way_out = f"go back to an intact one with --resume_from={intact}"
      raise DamagedCheckpointError(f"checkpoint {path} is damaged ({fault}); {way_out}")
    _check_same_arrays(saved_arrays(path), abstract_state, path)
    items = {_STATE: ocp.args.StandardRestore(abstract_state), _METADATA: _RestoreMetadata()}
    if (path / _INPUT).exists():
      items[_INPUT] = ocp.args.StandardRestore()
    restored = self._manager.restore(step, args=ocp.args.Composite(**items))
    return Checkpoint(restored[_STATE], restored.get(_INPUT, {}), restored[_METADATA])


@jax.jit
def _all_finite(tree) -> jax.Array:
  floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
  return jnp.all(jnp.array([True, *(jnp.isfinite(leaf).all() for leaf in floats)]))


def all_finite(tree) -> bool:
  """Returns whether all values of all processes are finite; all must call it together."""
  return all(processes.share(bool(_all_finite(tree))))


def steps(directory: str | os.PathLike) -> list[int]:
  """Returns the steps of the finished checkpoints in a directory, in order, damaged or not."""
  root = object_store.absolute(directory)
  return sorted(step.step for step in _STEPS.find_all(root)) if root.exists() else []


def resolve(directory: str | os.PathLike, *, step: int | None = None) -> object_store.Path:
  """Returns the path of a checkpoint, the newest intact one unless a step is given.

  Raises:
    FileNotFoundError: If it is not there.
    DamagedCheckpointError: If it is damaged, or all are.
  """
  found = steps(directory)
  if not found:
    below = object_store.absolute(directory) / "checkpoints"
    hint = (
      f"did you mean {below}?"
      if steps(below)
      else "give WORKDIR/checkpoints of a training or an import"
    )
    raise FileNotFoundError(f"no checkpoint in {os.fspath(directory)}; {hint}")
  if step is not None and step not in found:
    raise FileNotFoundError(
      f"no checkpoint of step {step} in {os.fspath(directory)}; it has {found}"
    )
  if step is None and (intact := first_intact(directory, found[::-1])) is not None:
    return object_store.Path(directory) / str(intact)
  path = object_store.Path(directory) / str(found[-1] if step is None else step)
  check_intact(path)
  return path


def check_intact(path: str | os.PathLike) -> None:
  """Compares the files of a checkpoint with the digests that were written with them.

  Raises:
    FileNotFoundError: If it has been deleted meanwhile.
    DamagedCheckpointError: If one is missing or differs.
  """
  if fault := _fault(path):
    if not object_store.absolute(path).exists():
      raise FileNotFoundError(f"checkpoint {os.fspath(path)} has been deleted")
    raise DamagedCheckpointError(
      f"checkpoint {os.fspath(path)} is damaged ({fault}); use that of another step"
    )


def first_intact(directory: str | os.PathLike, candidates: Iterable[int]) -> int | None:
  """Returns the first of some steps whose checkpoint is intact; warns of those before it."""
  for step in candidates:
    path = object_store.Path(directory) / str(step)
    if not (fault := _fault(path)):
      return step
    if object_store.absolute(path).exists():
      _warn_once(f"checkpoint {path} is damaged ({fault}) and is skipped")
  return None


@functools.cache
def _warn_once(message: str) -> None:
  _LOG.warning(message)


def _fault(path: str | os.PathLike) -> str:
  """Returns what is wrong with a checkpoint; empty if it is intact."""
  root = object_store.absolute(path)
  try:
    digests = text_files.parse_json((root / _DIGESTS).read_bytes())
    expected = tuple((name, str(digest)) for name, digest in digests.items())
  except (FileNotFoundError, NotADirectoryError):
    return f"{_DIGESTS if (root / _CONTENT).exists() else _CONTENT} is missing"
  except (ValueError, AttributeError):
    return f"{_DIGESTS} is not what was written"
  files = [root / name for name, _ in expected]
  local = not object_store.is_remote(root)
  changed = tuple(os.stat(file).st_mtime_ns for file in files if local and file.exists())
  return _first_difference(root, expected, changed)


@functools.lru_cache
def _first_difference(
  root: object_store.Path, expected: tuple[tuple[str, str], ...], changed: tuple[int, ...]
) -> str:
  """Returns what is wrong with the first file that has another digest.

  Every reader of a part of a checkpoint asks; files that have not `changed` are read once.
  """
  del changed
  for name, digest in expected:
    try:
      if _crc32c(root / name) != digest:
        return f"{name} is not what was written"
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
      return f"{name} is missing"
  return ""


def _files(path: object_store.Path) -> Iterator[object_store.Path]:
  """Yields all files below a path."""
  if path.is_dir():
    for below in path.iterdir():
      yield from _files(below)
  elif path.exists():
    yield path


def _crc32c(file: object_store.Path) -> str:
  digest = google_crc32c.Checksum()
  with file.open("rb") as content:
    while block := content.read(_BLOCK):
      digest.update(block)
  return digest.hexdigest().decode()


def read_metadata(path: str | os.PathLike) -> dict:
  """Reads the JSON values of a checkpoint, see `resolve`."""
  return text_files.parse_json((object_store.absolute(path) / _CONTENT).read_bytes())


def saved_arrays(path: str | os.PathLike) -> dict[tuple[str, ...], tuple[int, ...]]:
  """Returns the shapes of a checkpoint's arrays by path."""
  tree = ocp.PyTreeCheckpointHandler().metadata(_item(path, _STATE)).tree
  return {
    _names(keys): tuple(leaf.shape) for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }


def restore_params(path: str | os.PathLike, abstract_params: dict) -> dict:
  """Restores only some parameters, such as one of several encoders.

  Args:
    path: A checkpoint, see `resolve`.
    abstract_params: The part of the tree `params` to restore, as shapes with shardings.

  Raises:
    DamagedCheckpointError: If the checkpoint is damaged.
    ValueError: If one is missing from the checkpoint or has another shape.
  """
  check_intact(path)
  wanted = {"params": abstract_params}
  _check_same_arrays(saved_arrays(path), wanted, path, whole=False)
  restored = ocp.PyTreeCheckpointHandler().restore(
    _item(path, _STATE),
    args=ocp.args.PyTreeRestore(
      item=wanted,
      restore_args=ocp.checkpoint_utils.construct_restore_args(wanted),
      partial_restore=True,
    ),
  )
  return restored["params"]


def _item(path: str | os.PathLike, name: str) -> object_store.Path:
  # Read by its handler, because a checkpointer would look for its own metadata in every item.
  return object_store.absolute(path) / name


def _check_same_arrays(saved: dict, abstract_state, path, *, whole: bool = True) -> None:
  wanted = {
    _names(keys): tuple(leaf.shape)
    for keys, leaf in jax.tree_util.tree_leaves_with_path(abstract_state)
  }
  wrong = [
    f"{'/'.join(name)} {saved.get(name, 'is missing')} instead of {shape}"
    for name, shape in wanted.items()
    if saved.get(name) != shape
  ]
  if whole:
    wrong += [f"{'/'.join(name)} is not in this model" for name in saved.keys() - wanted.keys()]
  if wrong:
    if not any(line.startswith("params/") for line in wrong):
      raise OtherOptimizerError(f"{path} is of another optimizer: {sorted(wrong)[0]}")
    # Mismatched parameters are more telling than the optimizer's moments of them.
    shown = "; ".join(sorted(wrong, key=lambda line: (not line.startswith("params/"), line))[:4])
    more = f"; and {len(wrong) - 4} more" if len(wrong) > 4 else ""
    raise ValueError(f"{path} is a checkpoint of another model: {shown}{more}")


def _names(keys) -> tuple[str, ...]:
  return tuple(jax.tree_util.keystr((key,), simple=True) for key in keys)


class BestCheckpoint(contextlib.AbstractContextManager["BestCheckpoint"]):
  """Keeps one checkpoint of the parameters alone; use as a context manager.

  The best value is stored in the checkpoint, so a restarted run knows it. It gives way to the first
  offer of a run that has gone back before it, or that is measured on something else.

  Args:
    measured_on: Identifies what the metric is measured on.

  Raises:
    ValueError: If the existing checkpoint is the best by another metric.
  """

  def __init__(
    self,
    directory: str | os.PathLike,
    *,
    metric: str,
    better: Literal["higher", "lower"] = "higher",
    measured_on: str = "",
  ):
    self.metric, self._measured_on = metric, measured_on
    self._sign = 1 if better == "higher" else -1
    self._checkpointer = Checkpointer(directory, keep=1)
    self.step, self.value = self._checkpointer.latest_step(), None
    if self.step is not None:
      saved = read_metadata(resolve(directory, step=self.step))["best"]
      if saved["metric"] != metric:
        raise ValueError(
          f"{os.fspath(directory)} has the best checkpoint by {saved['metric']!r}; keep that "
          f"metric, or move the directory away to select by {metric!r}"
        )
      if saved["measured_on"] == measured_on:
        self.value = saved["value"]
      else:
        _LOG.warning(
          "%s has the best checkpoint by %s on other data; the next evaluation replaces it",
          os.fspath(directory),
          metric,
        )

  def __exit__(self, *_):
    self._checkpointer.close()

  def offer(self, step: int, params, *, metrics: Mapping[str, float], metadata: dict) -> bool:
    """Saves the parameters if they are the best so far; returns whether they are.

    A value that is not a number is worse than any that is.
    """
    if self.metric not in metrics:
      raise ValueError(f"no metric is named {self.metric!r}; choose one of {sorted(metrics)}")
    value = float(metrics[self.metric])
    gone_back = self.step is not None and step < self.step
    if self.value is not None and not gone_back and self._rank(value) <= self._rank(self.value):
      return False
    best = {"metric": self.metric, "measured_on": self._measured_on, "value": value}
    self._checkpointer.replace(
      step, {"params": params}, metadata={**metadata, "best": {**best, "figures": dict(metrics)}}
    )
    self.step, self.value = step, value
    _LOG.info("step %d is the best so far: %s %.4f", step, self.metric, value)
    return True

  def _rank(self, value: float) -> float:
    return -math.inf if math.isnan(value) else self._sign * value
