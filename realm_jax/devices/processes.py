"""Several processes as one: joining, the rows of each, and exchanging values.

Every process runs the same program on the same steps, and reads and retrieves its own rows of a
batch. Values that decide the next step (a swap, a stop) are exchanged first. With one process, all
of this is local and costs nothing.
"""

import contextlib
import functools
import io
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from realm_jax.devices import backend

backend.prepare()

PROMISED = "REALM_DEVICES"  # "PLATFORM:COUNT" of all processes, which a launcher sets
_saving = threading.Lock()


class DeviceError(Exception):
  """The devices are not those that the job was launched on."""


def join(*, coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
  """Joins the processes of a job; call it before JAX computes anything.

  Args:
    coordinator: "HOST:PORT" of the first process; or "auto" to let JAX detect it (TPU pods,
      SLURM, Open MPI, Kubernetes).
    num_processes: Number of processes; detected with "auto".
    process_id: Index of this process, from 0; detected with "auto".
  """
  if coordinator == "auto":
    jax.distributed.initialize()
    return
  if coordinator is None or num_processes is None or process_id is None:
    raise ValueError(
      f"coordinator={coordinator}, num_processes={num_processes}, process_id={process_id}: give "
      "all three, or coordinator=auto on a TPU pod or a cluster that JAX knows"
    )
  if not re.fullmatch(r"[^/]+:[0-9]{1,5}", coordinator):
    raise ValueError(f"coordinator={coordinator}; give HOST:PORT of the first process")
  if not 0 <= process_id < num_processes:
    raise ValueError(f"process_id={process_id} is not in 0 to {num_processes - 1}")
  jax.distributed.initialize(coordinator, num_processes, process_id)


@functools.cache
def devices() -> list[jax.Device]:
  """Returns the devices of all processes, process by process; the first call logs them.

  Raises:
    DeviceError: If the backend does not start, or has fewer than `REALM_DEVICES` promises.
  """
  try:
    found = in_order(jax.devices())
  except RuntimeError as error:
    raise DeviceError(f"no devices: {error}") from error
  platform, count = jax.default_backend(), len(found)
  promised = os.environ.get(PROMISED, f"{platform}:{count}")
  wanted, _, least = promised.partition(":")
  if not least.isdecimal():
    raise DeviceError(f"{PROMISED}={promised}; write PLATFORM:COUNT such as tpu:64")
  if wanted != platform or count < int(least):
    raise DeviceError(
      f"{PROMISED}={promised}, but JAX has {platform}:{count}; see whether every host came up with "
      "its devices, or unset the variable to compute on these"
    )
  logging.info(
    "devices: %d x %s (%s), processes: %d",
    count,
    found[0].device_kind,
    platform,
    jax.process_count(),
  )
  return found


@contextlib.contextmanager
def saving() -> Iterator[None]:
  """Lets one thread begin to save at a time, because Orbax numbers saves for all threads together.

  Without it, a trainer and an index builder in one process may create each other's directories.
  Several processes take no lock: one could wait for a thread of another.
  """
  with _saving if jax.process_count() == 1 else contextlib.nullcontext():
    yield


def is_first() -> bool:
  """Returns whether this is the process that writes for all."""
  return jax.process_index() == 0


def put_on_devices(tree, sharding: Sharding):
  """Puts the rows of this process on its devices, as its part of the global arrays."""
  if jax.process_count() == 1:
    return jax.device_put(tree, sharding)
  return jax.tree.map(
    lambda rows: jax.make_array_from_process_local_data(sharding, np.asarray(rows)), tree
  )


def local_rows(array: jax.Array) -> np.ndarray:
  """Waits for an array sharded by rows, and returns the rows of this process."""
  if jax.process_count() == 1 or array.is_fully_addressable:
    return np.asarray(array)
  rows = {shard.index[0].start or 0: shard.data for shard in array.addressable_shards}
  return np.concatenate([np.asarray(rows[start]) for start in sorted(rows)])


def whole(array) -> np.ndarray:
  """Returns a whole array; if it is sharded over processes, all must call this together."""
  if isinstance(array, jax.Array) and not (array.is_fully_addressable or array.is_fully_replicated):
    array = multihost_utils.process_allgather(array, tiled=True)
  return np.asarray(array)


def own_rows(rows: np.ndarray) -> np.ndarray:
  """Returns this process's part of the rows of all processes."""
  size = len(rows) // jax.process_count()
  return rows[jax.process_index() * size :][:size]


def gather(arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
  """Returns the named arrays of every process, which may differ in names and sizes."""
  if jax.process_count() == 1:
    return [dict(arrays)]
  packed = io.BytesIO()
  # As bytes, because JAX truncates 64-bit integers.
  np.savez(packed, allow_pickle=False, **arrays)
  content = np.frombuffer(packed.getvalue(), np.uint8)
  sizes = multihost_utils.process_allgather(np.asarray(content.size, np.int32))
  padded = np.zeros(_rounded_up(int(sizes.max())), np.uint8)
  padded[: content.size] = content
  gathered = multihost_utils.process_allgather(padded)
  found = []
  for row, size in zip(np.asarray(gathered), sizes, strict=True):
    with np.load(io.BytesIO(row[:size].tobytes()), allow_pickle=False) as unpacked:
      found.append({name: unpacked[name] for name in unpacked.files})
  return found


def _rounded_up(size: int) -> int:
  """Returns at most a quarter or 1 KiB more, because each size is a program of its own."""
  step = max(1024, 1 << max(0, size.bit_length() - 3))
  return -(-size // step) * step


def share(value: Any) -> list[Any]:
  """Waits for all processes, and returns the JSON value of each."""
  encoded = np.frombuffer(json.dumps(value).encode(), np.uint8)
  return [json.loads(part["value"].tobytes()) for part in gather({"value": encoded})]


def gather_rows(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Returns the rows of all processes; the inverse of `own_rows`."""
  parts = gather(arrays)
  return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class Exchange:
  """Sends a few integers to all processes, and returns those they sent in the previous call.

  So a call never waits for a step that was enqueued after the previous call. All processes must
  call it equally often. With one process, a call returns its own numbers at once.
  """

  def __init__(self):
    self._sent = None
    # Of all devices, because some TPU slices (v5e, v6e) cannot compile a program for only some.
    grid = np.array(devices(), object).reshape(jax.process_count(), -1)
    mesh = Mesh(grid, ("processes", "local"))
    self._split = NamedSharding(mesh, PartitionSpec("processes"))
    everywhere = NamedSharding(mesh, PartitionSpec())
    self._share = jax.jit(lambda numbers: numbers, out_shardings=everywhere)

  def __call__(self, numbers: Sequence[int]) -> np.ndarray | None:
    """Returns an array `[processes, numbers]`; None at the first call of several processes."""
    own = np.asarray([numbers], np.int32)
    if jax.process_count() == 1:
      return own
    before = self._sent
    self._sent = self._share(jax.make_array_from_process_local_data(self._split, own))
    return None if before is None else np.asarray(before)


def in_order(devices: Sequence[jax.Device]) -> list[jax.Device]:
  """Returns devices process by process."""
  return sorted(devices, key=lambda device: (device.process_index, device.id))
