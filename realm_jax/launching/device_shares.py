"""Divides the devices of one machine between a trainer and an index builder.

A TPU can be opened by only one process. GPUs are divided; a single GPU is shared, each process
getting part of its memory, because JAX would otherwise preallocate most of it.
"""

import contextlib
import dataclasses
import glob
import importlib.util
import math
import os
from collections.abc import Mapping

_TPUS = ("accel*", "vfio/[0-9]*")  # device files
_MEMORY_FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")  # new, old name
_TRAINER_MEMORY, _BUILDER_MEMORY = "0.70", "0.20"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shares:
  """Environment variables of both processes, and a description of the division."""

  trainer: dict[str, str]
  builder: dict[str, str]
  description: str


def share(
  wanted: str | None, *, environment: Mapping[str, str] = os.environ, devices: str = "/dev"
) -> Shares:
  """Returns the devices of each process.

  Args:
    wanted: Devices of the builder: "cpu", or numbers of GPUs such as "6,7". None uses the last of
      several GPUs, or part of the only one.
    environment: Environment that both inherit.
    devices: Directory of the device files.

  Raises:
    ValueError: If both would open a TPU, or the trainer would get no GPU.
  """
  kind = _accelerator(environment, devices)
  if wanted == "cpu" or kind == "cpu":
    if wanted not in (None, "cpu"):
      raise ValueError(f"builder_devices={wanted}, but there are no GPUs here; leave it out")
    cpu = {"JAX_PLATFORMS": "cpu"} if wanted == "cpu" else {}
    return Shares(trainer={}, builder=cpu, description=f"trainer on {kind}, index builder on cpu")
  if kind == "tpu":
    raise ValueError(
      "trainer and index builder cannot both open the TPU of this machine; give "
      "--builder_devices=cpu, or run `realm pretrain` here and `realm build_index --follow=true` "
      "on another machine"
    )
  return _split(wanted, environment, devices)


def _accelerator(environment: Mapping[str, str], devices: str) -> str:
  """Returns "tpu", "gpu" or "cpu", whichever JAX will use."""
  allowed = environment.get("JAX_PLATFORMS", "")
  if "tpu" in allowed or (not allowed and _installed("libtpu") and _files(devices, *_TPUS)):
    return "tpu"
  plugin = _installed("jax_cuda12_plugin") or _installed("jax_cuda13_plugin")
  if "cuda" in allowed or "gpu" in allowed or (not allowed and plugin):
    return "gpu" if _gpus(environment, devices) else "cpu"
  return "cpu"


def memory_fraction(environment: Mapping[str, str] = os.environ) -> float | None:
  """Returns the share of a GPU's memory that JAX is told to take; None leaves it to JAX.

  Raises:
    ValueError: If it is no positive number.
  """
  for name in _MEMORY_FRACTIONS:
    if text := environment.get(name):  # JAX, too, takes "" for unset
      with contextlib.suppress(ValueError):
        if 0 < (fraction := float(text)) < math.inf:
          return fraction
      raise ValueError(f"{name}={text} is no share of a GPU's memory; set it to one such as 0.75")
  return None


def _split(wanted: str | None, environment: Mapping[str, str], devices: str) -> Shares:
  gpus = _gpus(environment, devices)
  if wanted is None and len(gpus) == 1:
    if memory_fraction(environment) is not None:
      return Shares(trainer={}, builder={}, description=f"both on GPU {gpus[0]}")
    return Shares(
      trainer={_MEMORY_FRACTIONS[0]: _TRAINER_MEMORY},
      builder={_MEMORY_FRACTIONS[0]: _BUILDER_MEMORY},
      description=f"trainer and index builder share GPU {gpus[0]}, with {_TRAINER_MEMORY} and "
      f"{_BUILDER_MEMORY} of its memory",
    )
  builder = gpus[-1:] if wanted is None else wanted.split(",")
  trainer = [gpu for gpu in gpus if gpu not in builder]
  if not set(builder) <= set(gpus) or not trainer:
    raise ValueError(
      f"builder_devices={wanted} of the GPUs {','.join(gpus)}; give some of them, not all, or cpu"
    )
  both = [",".join(trainer), ",".join(builder)]
  return Shares(
    trainer={"CUDA_VISIBLE_DEVICES": both[0]},
    builder={"CUDA_VISIBLE_DEVICES": both[1]},
    description="trainer on GPU {}, index builder on GPU {}".format(*both),
  )


def _gpus(environment: Mapping[str, str], devices: str) -> list[str]:
  """Returns the numbers or names of the GPUs that JAX may use."""
  visible = environment.get("CUDA_VISIBLE_DEVICES")
  if visible is not None:
    return [gpu for gpu in visible.split(",") if gpu]
  return [str(number) for number in range(len(_files(devices, "nvidia[0-9]*")))]


def _files(devices: str, *patterns: str) -> list[str]:
  return [file for pattern in patterns for file in glob.glob(os.path.join(devices, pattern))]


def _installed(module: str) -> bool:
  return importlib.util.find_spec(module) is not None
