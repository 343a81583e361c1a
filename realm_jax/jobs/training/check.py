"""Checks the devices and the storage of a training, within minutes and before it is paid for."""

import os
import tempfile
import time
from collections.abc import Callable

import jax

from realm_jax.devices import directory_lock, partitioning, processes
from realm_jax.foundations import choices
from realm_jax.foundations.output_kinds import DirectoryKind
from realm_jax.training.machines.machine_checks import MachineChecks
from realm_jax.training.recipes.pretraining import Pretraining

WORKDIR_KIND = DirectoryKind(
  name="a check", files=("check-*/", "*_config.gin", directory_lock.LOCK_FILE)
)


def check(
  *,
  workdir: str | None = None,
  pretraining: Pretraining = Pretraining(),
  storage_mib: choices.Count = 256,
) -> int:
  """Prints what works on the devices that are there, and the setting that goes round what does not.

  Every host of a pod runs the same command. On CPUs, where this job can be tried out, the step is
  that of a tiny training.

  Args:
    workdir: Directory or bucket to try; a subdirectory is written and left. None uses a temporary
      directory.
    pretraining: The training whose attention and step are tried; a batch that does not fit is
      halved until it does.
    storage_mib: Size of the arrays that are written and read.

  Returns:
    0 if everything works, 1 if not.
  """
  if workdir is None and jax.process_count() > 1:
    raise ValueError("several processes need a directory that all can reach; give --workdir")
  with tempfile.TemporaryDirectory() as temporary:
    if workdir is not None:
      WORKDIR_KIND.check(workdir)
    checks = MachineChecks(
      directory=os.path.join(workdir or temporary, processes.share(f"check-{time.time_ns()}")[0]),
      mesh=partitioning.make_mesh(),
      pretraining=pretraining,
      storage_bytes=storage_mib << 20,
    )
    failures = [_fails(*line) for line in checks.lines()]
  if processes.is_first():
    failed = f"{sum(failures)} of {len(failures)} do not work" if any(failures) else "all works"
    print(f"{failed}; {workdir or 'a temporary directory'} was written", flush=True)
  return int(any(failures))


def _fails(name: str, what: Callable[[], str], way_round: str) -> bool:
  """Runs a check, prints its line, and returns whether it failed in any process."""
  started, error, figure = time.perf_counter(), "", ""
  try:
    figure = what()
  except Exception as failure:  # whatever a device or a store does, the next line is tried
    error = f"{type(failure).__name__}: {(str(failure).strip() or '?').splitlines()[0]}"
  errors = [other for other in processes.share(error) if other]
  if processes.is_first():
    text = f"{errors[0]}\n{'':7}{way_round}" if errors else figure
    seconds = time.perf_counter() - started
    print(f"{'FAILS' if errors else 'works':6} {name:34}{seconds:6.1f} s  {text}", flush=True)
  return bool(errors)
