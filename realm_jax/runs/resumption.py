"""Whether a run that is continued gets the batches it was promised: what decides them, by name."""

import json
from collections.abc import Mapping, Sequence

from absl import logging


def changes(
  before: Mapping | None, now: Mapping, *, allowed: Sequence[str], workdir: str
) -> list[str]:
  """Returns the names of what differs from the run that is continued, all of them allowed.

  Args:
    before: What decided the batches of the run; None if its checkpoint does not say it.
    now: What decides them from here on.
    allowed: Names that may differ.
    workdir: Of the run.

  Raises:
    ValueError: If something else differs, or a name is unknown.
  """
  unknown = sorted(set(allowed) - set(now))
  if unknown:
    raise ValueError(f"allow_changes names {unknown}; choose from {sorted(now)}")
  if before is None:
    logging.warning(
      "the checkpoint in %s does not say what its batches were made of; they are not compared",
      workdir,
    )
    return []
  now = json.loads(json.dumps(now))  # as a checkpoint keeps it
  differing = [
    name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)
  ]
  refused = [name for name in differing if name not in allowed]
  if refused:
    values = "; ".join(f"{name} {before.get(name)}, now {now.get(name)}" for name in refused)
    raise ValueError(
      f"{workdir} holds a run with other batches ({values}); continue it as it was, choose another "
      f"workdir, or begin its data anew with --allow_changes={','.join(differing)}"
    )
  if differing:
    logging.warning("%s goes on with new data: %s differ", workdir, ", ".join(differing))
  return differing
