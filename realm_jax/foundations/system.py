"""What one operating system has and another has not: cores, processors, locks.

Linux and macOS have all that the package needs. Windows has it in its subsystem for Linux.
"""

import os

try:
  import fcntl
except ModuleNotFoundError as error:
  raise ImportError(
    "realm_jax needs Linux or macOS; on Windows, install and run it in WSL (wsl --install)"
  ) from error


def num_cores() -> int:
  """Returns the number of cores that this process may use, or that there are if that is unknown."""
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def processor(field: str) -> str:
  """Returns a field of /proc/cpuinfo, such as "flags"; "unknown" where there is none."""
  try:
    with open("/proc/cpuinfo") as file:
      return next(line.partition(": ")[2].strip() for line in file if line.startswith(field))
  except (OSError, StopIteration):
    return "unknown"


def lock(descriptor: int, *, wait: bool) -> None:
  """Takes the only lock on an open file or directory, which ends with the descriptor.

  Raises:
    BlockingIOError: If another holds it, and `wait` is false.
    OSError: If the file system has no locks on such files; NFS has none on directories.
  """
  fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
