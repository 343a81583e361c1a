"""Checks that a resumed run reads the batches that it would have read."""

import json
from collections.abc import Mapping, Sequence

from absl import logging

from realm_jax.checkpoints import orbax_files
from realm_jax.devices import processes
from realm_jax.foundations import object_store

NUM_STEPS = "run.num_steps"  # which a run that was extended differs in


def changes(
  before: Mapping | None, now: Mapping, *, allowed: Sequence[str], workdir: str
) -> list[str]:
  """Returns the names of the batch settings that differ from those of the run to resume.

  Raises:
    ValueError: If another setting differs, or a name is unknown.
  """
  unknown = sorted(set(allowed) - set(now))
  if unknown:
    raise ValueError(f"allow_changes names {unknown}; choose from {sorted(now)}")
  if before is None:
    logging.warning(
      "the checkpoint in %s does not describe its batches, so they are not compared", workdir
    )
    return []
  differing = differences(before, now)
  values = "; ".join(text for name, text in differing.items() if name not in allowed)
  if values:
    raise ValueError(
      f"{workdir} holds a run with other batches ({values}); resume it unchanged, choose another "
      f"workdir, or restart its data with --allow_changes={','.join(differing)}"
    )
  if differing:
    logging.warning("%s restarts its data: %s differ", workdir, ", ".join(differing))
  return list(differing)


def go_back(directory: str, step: int, *, learning: Mapping) -> None:
  """Deletes the checkpoints after a step, for a run to resume from it, and the best one if later.

  The same command started again resumes from what it has saved since.
  """
  orbax_files.resolve(directory, step=step)
  if processes.share(_has_come_from(directory, step, learning))[0]:
    return
  root = object_store.absolute(directory)
  # The best first: without newer checkpoints, nothing would tell that it is of another branch.
  for kept in (root.parent / orbax_files.BEST, root):
    newer = [found for found in orbax_files.steps(kept) if found > step]
    if processes.is_first() and newer:
      logging.warning("%s: going back to step %d deletes %s", kept, step, newer)
      for found in newer:
        (kept / str(found)).rmtree()
  processes.share(None)


def _has_come_from(directory: str, step: int, learning: Mapping) -> bool:
  """Returns whether the newest checkpoint is of the same run, resumed from a step."""
  newest = orbax_files.resolve(directory)
  metadata = orbax_files.read_metadata(newest)
  if int(newest.name) == step or metadata.get("resumed_from") != step:
    return False
  if came := not differences(metadata["learning"], learning).keys() - {NUM_STEPS}:
    logging.info("%s has come from step %d already and resumes from there", newest, step)
  return came


def warn_of_other_learning(before: Mapping | None, now: Mapping, *, workdir: str) -> None:
  """Warns of settings that learning depends on and that changed, by name.

  Args:
    before: Its settings so far; None in checkpoints that do not name them.
  """
  if before is not None and (differing := differences(before, now)):
    logging.warning("%s continues with other settings: %s", workdir, "; ".join(differing.values()))


def differences(before: Mapping, now: Mapping) -> dict[str, str]:
  """Returns a text with both values of each setting that differs, by its name in order."""
  now = json.loads(json.dumps(now))  # as a checkpoint stores it
  names = sorted(before.keys() | now.keys())
  pairs = {name: (before.get(name), now.get(name)) for name in names}
  return {name: f"{name} {was}, now {is_}" for name, (was, is_) in pairs.items() if was != is_}
