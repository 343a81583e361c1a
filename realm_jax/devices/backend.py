"""Settings that JAX's backend needs before it starts, and a check of its CPU programs.

jaxlib 0.10.2 delegates reductions to YNNPACK, which computes some wrongly on CPUs with AMX (jax
issue 39103) and crashes in others (jax issue 40412). An XLA flag turns this off.
"""

import glob
import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys

_REDUCTIONS = "xla_cpu_experimental_ynn_fusion_type"
_WITHOUT_YNNPACK = f"--{_REDUCTIONS}=-reduce"
_MISCOMPILING = ("0.10.2",)
# Device files of TPUs (two ways), and of graphics processors.
_ACCELERATORS = ("accel*", "vfio/[0-9]*", "nvidia[0-9]*", "nvidiactl", "dxg", "kfd")


class MiscompilationError(Exception):
  """This jaxlib computes wrong results on this CPU."""


def prepare() -> None:
  """Sets JAX_PLATFORMS and extends XLA_FLAGS as needed; the user's settings take precedence.

  Every module that computes imports one that calls it; `import realm_jax` alone changes nothing.

  Raises:
    MiscompilationError: If JAX has started without a flag that it needs and computes wrongly.
  """
  # If libtpu is installed only for `realm plan`, it complains at length about the missing TPU.
  if importlib.util.find_spec("libtpu") and not _accelerators():
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
  _keep_reductions_right()


def _accelerators(devices: str = "/dev") -> list[str]:
  """Returns the device files of accelerators."""
  return [file for name in _ACCELERATORS for file in glob.glob(os.path.join(devices, name))]


def _keep_reductions_right() -> None:
  if _jaxlib_version() not in _MISCOMPILING:
    return
  given = os.environ.get("XLA_FLAGS", "").strip()
  if _REDUCTIONS in given or (given and not given.startswith("-")):  # a file of flags
    return
  if _has_started():
    try:
      _sum()
    except ArithmeticError as error:
      raise _refusal(
        f"{error}; import realm_jax.devices.datatypes before JAX computes anything, or"
      ) from None
  else:
    os.environ["XLA_FLAGS"] = f"{given} {_WITHOUT_YNNPACK}".lstrip()


def check() -> None:
  """Computes sums that are known to go wrong, once per jaxlib, CPU and XLA_FLAGS.

  Raises:
    MiscompilationError: If a result is wrong, or the process that computed it died.
  """
  from realm_jax.foundations import (  # late: importing realm_jax stays cheap
    atomic_files,
    object_store,
  )

  combination = (_jaxlib_version(), *_instructions(), os.environ.get("XLA_FLAGS", ""))
  name = hashlib.sha256(repr(combination).encode()).hexdigest()[:16]
  passed = os.path.join(object_store.cache_directory(), "checked_processors", name)
  if os.path.exists(passed):
    return
  child = subprocess.run(
    [sys.executable, "-P", __file__],
    env={**os.environ, "JAX_PLATFORMS": "cpu"},
    capture_output=True,
    text=True,
  )
  if child.returncode:
    reason = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    raise _refusal(f"{reason.removeprefix('ArithmeticError: ')};")
  atomic_files.write_text(passed, f"{combination}\n")


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
  processor = hashlib.sha256(repr(_instructions()).encode()).hexdigest()[:16]
  return os.path.join(base, "compiled", processor)


def _sum() -> None:
  """Raises `ArithmeticError` if the sum of issue 39103 is wrong."""
  import jax
  import jax.numpy as jnp
  import numpy as np

  rows = np.zeros((32769, 3), np.float32)
  rows[-1, 0] = 2.0**15
  identity = np.eye(3, dtype=np.float32)
  found = float(jax.jit(jax.vmap(lambda row: jnp.sum((identity @ row) ** 2)))(rows)[-1])
  if found != 2.0**30:
    raise ArithmeticError(f"a sum is {found} instead of {2.0**30}")


def _crash() -> None:
  """Computes the sum of issue 40412, which crashes the process if it is compiled wrongly."""
  import jax
  import jax.numpy as jnp
  import numpy as np

  ones = np.ones((3, 1, 2, 2, 8, 8, 8), np.float32)
  jax.jit(lambda a, b: jnp.sum(a * b, axis=3))(ones, ones).block_until_ready()


def _refusal(reason: str) -> MiscompilationError:
  return MiscompilationError(
    f"jaxlib {_jaxlib_version()} fails on this processor ({_processor()}) with "
    f"XLA_FLAGS={os.environ.get('XLA_FLAGS', '')!r}: {reason} change the flags (jaxlib 0.10.2 "
    f"needs {_WITHOUT_YNNPACK}) or install another jaxlib"
  )


def _jaxlib_version() -> str:
  try:
    return importlib.metadata.version("jaxlib")
  except importlib.metadata.PackageNotFoundError:
    return "none"


def _processor(field: str = "model name") -> str:
  try:
    with open("/proc/cpuinfo") as file:
      return next(line.partition(": ")[2].strip() for line in file if line.startswith(field))
  except (OSError, StopIteration):
    return "unknown"


def _instructions() -> tuple[str, str]:
  """Identifies the kind of CPU; virtual machines share names of CPUs, but not their features."""
  return _processor(), _processor("flags")


def _has_started() -> bool:
  jax = sys.modules.get("jax")
  return jax is not None and jax._src.xla_bridge.backends_are_initialized()


if __name__ == "__main__":
  _sum()
  _crash()
