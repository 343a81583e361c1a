"""Checkpoints: state, data position, batch in flight; by Orbax, asynchronously and atomically.

A checkpoint of step s holds everything that decides step s+1: the state, the position of the input
pipeline, and the batch already retrieved for the next step. A restarted run continues with just
that batch, so its losses are those of a run that was never stopped.
"""

import dataclasses
import os
import uuid
from typing import Any

import jax
import orbax.checkpoint as ocp

from realm_jax import object_store, processes

_STATE, _INPUT, _METADATA = "state", "input", "metadata"
_STEPS = ocp.step.standard_name_format()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """Tells a run's checkpoints, and what is made from them, from those of other runs.

  Attributes:
    name: Random name, drawn when the run began and written into every checkpoint.
    checkpoints: Directory of the checkpoints.
  """

  name: str
  checkpoints: str

  def has_reached(self, step: int) -> bool:
    """Returns whether there is a checkpoint of this step, or of a later one."""
    return step <= max(steps(self.checkpoints), default=-1)


def run_of(directory: str) -> Run:
  """Returns the run whose checkpoints lie in a directory; a new one where there are none."""
  metadata = read_metadata(resolve(directory)) if steps(directory) else {}
  new = processes.share(uuid.uuid4().hex[:12])[0]
  return Run(name=metadata.get("run", new), checkpoints=directory)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """A restored checkpoint.

  Attributes:
    state: The train state.
    input: Numpy trees saved beside it: data position and batch in flight; empty before the first
      batch.
    metadata: JSON values: generation in use, corpus fingerprint, vocabulary and so on.
  """

  state: Any
  input: dict
  metadata: dict


class Checkpointer:
  """Writes and reads the checkpoints of one run; use as a context manager.

  Args:
    directory: Local or `gs://`.
    keep: Number of checkpoints to keep.
  """

  def __init__(self, directory: str | os.PathLike, *, keep: int = 5):
    self.directory = object_store.absolute(directory)
    self._manager = ocp.CheckpointManager(
      self.directory,
      item_names=(_STATE, _INPUT, _METADATA),
      options=ocp.CheckpointManagerOptions(
        max_to_keep=keep, enable_async_checkpointing=True, cleanup_tmp_directories=True
      ),
    )

  def __enter__(self) -> "Checkpointer":
    return self

  def __exit__(self, *_):
    self.close()

  def close(self) -> None:
    """Waits for the checkpoint under way, and ends."""
    self._manager.close()

  def latest_step(self) -> int | None:
    """Returns the step of the newest finished checkpoint."""
    return self._manager.latest_step()

  def save(self, step: int, state, *, input: dict, metadata: dict) -> None:
    """Starts to write a checkpoint, unless the step has one; returns once arrays are copied."""
    items = {_STATE: ocp.args.StandardSave(state), _METADATA: ocp.args.JsonSave(metadata)}
    if input:  # Orbax takes no empty tree
      items[_INPUT] = ocp.args.StandardSave(input)
    self._manager.save(step, args=ocp.args.Composite(**items))

  def wait(self) -> None:
    """Waits until the checkpoint under way is on disk."""
    self._manager.wait_until_finished()

  def restore(self, abstract_state) -> Checkpoint | None:
    """Restores the newest checkpoint with the abstract state's shardings; None if there is none.

    Raises:
      ValueError: If the checkpoint's arrays are not those of the abstract state.
    """
    step = self.latest_step()
    if step is None:
      return None
    path = self.directory / str(step)
    _check_same_arrays(saved_arrays(path), abstract_state, path)
    items = {
      _STATE: ocp.args.StandardRestore(abstract_state),
      _METADATA: ocp.args.JsonRestore(),
    }
    if (path / _INPUT).exists():
      items[_INPUT] = ocp.args.StandardRestore()
    restored = self._manager.restore(step, args=ocp.args.Composite(**items))
    return Checkpoint(restored[_STATE], restored.get(_INPUT, {}), restored[_METADATA])


def steps(directory: str | os.PathLike) -> list[int]:
  """Returns the steps of the finished checkpoints in a directory, in order."""
  root = object_store.absolute(directory)
  if not root.exists():
    return []
  # In an object store a checkpoint under way has its final name already, but not Orbax's mark.
  found = _STEPS.find_all(root)
  return sorted(step.step for step in found if (step.path / _METADATA).exists())


def resolve(directory: str | os.PathLike, *, step: int | None = None) -> object_store.Path:
  """Returns the path of a checkpoint, the newest unless a step is named.

  Raises:
    FileNotFoundError: If it is not there.
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
  return object_store.Path(directory) / str(found[-1] if step is None else step)


def read_metadata(path: str | os.PathLike) -> dict:
  """Reads the JSON values of a checkpoint."""
  handler = ocp.JsonCheckpointHandler()
  return dict(handler.restore(_item(path, _METADATA), args=ocp.args.JsonRestore()))


def saved_arrays(path: str | os.PathLike) -> dict[tuple[str, ...], tuple[int, ...]]:
  """Returns the shapes of a checkpoint's state by their path."""
  tree = ocp.PyTreeCheckpointHandler().metadata(_item(path, _STATE)).tree
  return {
    _names(keys): tuple(leaf.shape) for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }


def restore_params(path: str | os.PathLike, abstract_params: dict) -> dict:
  """Restores only the parameters asked for, such as one encoder of several.

  Args:
    path: A checkpoint, see `resolve`.
    abstract_params: The part of the tree `params` to restore, as shapes with shardings.

  Raises:
    ValueError: If one is missing in the checkpoint or has another shape.
  """
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
  # Read by its handler alone: a checkpointer would look for metadata of its own in every item.
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
    # Parameters say more than the moments of the optimizer that go with them.
    shown = "; ".join(sorted(wrong, key=lambda line: (not line.startswith("params/"), line))[:4])
    more = f"; and {len(wrong) - 4} more" if len(wrong) > 4 else ""
    raise ValueError(f"{path} is a checkpoint of another model: {shown}{more}")


def _names(keys) -> tuple[str, ...]:
  return tuple(jax.tree_util.keystr((key,), simple=True) for key in keys)
