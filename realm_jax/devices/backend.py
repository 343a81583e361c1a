"""Where JAX computes, and where the programs that it compiles are kept."""

import glob
import hashlib
import importlib.util
import os
import traceback

from realm_jax.foundations import system

# Device files of TPUs (two ways), and of graphics processors.
_ACCELERATORS = ("accel*", "vfio/[0-9]*", "nvidia[0-9]*", "nvidiactl", "dxg", "kfd")


def prepare() -> None:
  """Sets JAX_PLATFORMS as needed; the user's setting takes precedence.

  Every module that computes imports one that calls it; `import realm_jax` alone changes nothing.
  """
  # If libtpu is installed only for `realm plan`, it complains at length about the missing TPU.
  if importlib.util.find_spec("libtpu") and not accelerators():
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


def accelerators(devices: str = "/dev") -> list[str]:
  """Returns the device files of accelerators."""
  return [file for name in _ACCELERATORS for file in glob.glob(os.path.join(devices, name))]


def not_started(error: Exception) -> str:
  """Returns what to do if JAX found no device of JAX_PLATFORMS; "" for another error."""
  frames, wanted = traceback.extract_tb(error.__traceback__), os.environ.get("JAX_PLATFORMS")
  if not wanted or not frames or not frames[-1].filename.endswith("jax/_src/xla_bridge.py"):
    return ""
  reason = str(error).strip().partition("\n")[0]
  said = "" if not reason or reason.startswith("In call to") else f" ({reason})"
  return (
    f"JAX found no device of JAX_PLATFORMS={wanted}{said}; unset it to compute on what is here, "
    "or install what JAX needs for them"
  )


def keep_programs(directory: str | None) -> None:
  """Keeps compiled programs for later runs, unless the user's settings say where.

  A single process keeps them in `$REALM_CACHE`. A job in an object store may resume elsewhere, and
  of several processes JAX lets only the first one write: such jobs keep them next to their
  directory, where all can read them. On TPUs a program for the devices of one host has another key
  on each host, so the other hosts compile such programs at every start.

  Args:
    directory: Where the job writes; None if it writes nothing.
  """
  import jax

  from realm_jax.foundations import object_store  # late: importing realm_jax stays cheap

  if jax.config.values["jax_compilation_cache_dir"] is not None:
    return
  base, remote = object_store.cache_directory(), directory and object_store.is_remote(directory)
  if directory and (remote or jax.distributed.is_initialized()):
    base = os.fspath(object_store.absolute(directory).parent)
  jax.config.update("jax_compilation_cache_dir", programs_directory(base))
  # A small program takes longer to fetch from a store than to compile.
  if not remote and "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def programs_directory(base: str) -> str:
  """Returns the directory of compiled programs for this kind of CPU; others may crash in them."""
  # Virtual machines share names of CPUs, but not their features.
  kind = repr((system.processor("model name"), system.processor("flags")))
  return os.path.join(base, "compiled", hashlib.sha256(kind.encode()).hexdigest()[:16])
