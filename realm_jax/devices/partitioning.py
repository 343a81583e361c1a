"""The table from logical axes of arrays to mesh axes, and the shardings derived from it.

The mesh has two axes: `data` splits the batch, `model` splits the parameters. The table allows
three ways to train, which can be combined:

- Data parallel: `model` of size 1, layout "replicated"; every device holds all parameters.
- Tensor parallel: `model` of size m; heads, feed-forward units and words are split over m devices.
- Fully sharded: layout "fully_sharded"; parameters and optimizer slots are also split over `data`
  along the model width, and gathered where they are used (ZeRO, Rajbhandari et al. 2020).
"""

import functools
import logging
import math
import types
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np
from flax.core import meta
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from realm_jax.devices import processes
from realm_jax.foundations import choices

_logger = logging.getLogger(__name__)

Layout = Literal["replicated", "fully_sharded"]

AXIS_RULES = types.MappingProxyType(
  {
    # logical axis: its mesh axis, or one for each `Layout`
    "batch": "data",
    "retrieved": None,
    "length": None,
    "passages": ("data", "model"),
    "embed": {"replicated": None, "fully_sharded": "data"},
    "embed_out": None,
    "heads": "model",
    "kv": None,
    "mlp": "model",
    "vocab": "model",
    "position": None,
    "segment": None,
    "projection": None,
  }
)


def make_mesh(*, model: int = 1, devices: Sequence[jax.Device] | None = None) -> Mesh:
  """Returns the `data` × `model` mesh of devices, by default of all processes.

  Rows follow the order of the processes, and a row is within one process, so that each process
  feeds its own contiguous share of the batch on every topology.

  Raises:
    ValueError: If `model` does not divide the devices, a copy of the model would span processes, or
      the devices belong to several TPU slices.
  """
  devices = processes.devices() if devices is None else processes.in_order(devices)
  num_devices = len(devices)
  slices = {getattr(device, "slice_index", 0) for device in devices}
  if len(slices) > 1:
    raise ValueError(
      f"the devices belong to {len(slices)} TPU slices, and a training runs on one; start it on "
      "one slice (an index builder takes any number of them)"
    )
  if model < 1 or num_devices % model:
    raise ValueError(f"model={model} does not divide {num_devices} devices; give a size that does")
  grid = np.array(devices, object).reshape(-1, model)
  for row in grid:
    owners = sorted({device.process_index for device in row})
    if len(owners) > 1:
      raise ValueError(
        f"model={model}: a copy of the model would span processes {owners}; give a size that "
        "divides the devices of a process"
      )
  return Mesh(grid, ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def local_meshes(
  devices: Sequence[jax.Device] | None = None, *, process: int | None = None
) -> list[Mesh]:
  """Returns the meshes of one process's devices, for programs that no other process takes part in.

  It is one mesh of all of them. On a slice of TPU v5e with several hosts, each device is a mesh of
  its own, because libtpu compiles nothing for exactly the devices of the first host there.
  """
  devices = processes.devices() if devices is None else processes.in_order(devices)
  process = jax.process_index() if process is None else process
  own = [device for device in devices if device.process_index == process]
  per_device = len(own) < len(devices) and own[0].device_kind == "TPU v5 lite"
  return [make_mesh(devices=part) for part in ([[one] for one in own] if per_device else [own])]


def sharding(mesh: Mesh, *logical_axes: str | None, layout: Layout = "replicated") -> NamedSharding:
  """Returns the sharding of an array with these logical axes; axes named None are not split.

  Raises:
    ValueError: If an axis is not in `AXIS_RULES`, two of them claim one mesh axis, or the layout is
      unknown.
  """
  choices.check(Layout, layout=layout)
  mesh_axes = []
  claims: dict[str, str | None] = {}
  for logical_axis in logical_axes:
    if logical_axis is not None and logical_axis not in AXIS_RULES:
      raise ValueError(
        f"unknown logical axis {logical_axis!r}; choose one of {sorted(AXIS_RULES)} or add a rule"
      )
    mesh_axis = None if logical_axis is None else AXIS_RULES[logical_axis]
    if isinstance(mesh_axis, dict):
      mesh_axis = mesh_axis[layout]
    for claimed in _names(mesh_axis):
      if claimed in claims:
        raise ValueError(
          f"logical axes {claims[claimed]!r} and {logical_axis!r} of one array both claim mesh "
          f"axis {claimed!r}; name one of them differently or give it None"
        )
      claims[claimed] = logical_axis
    mesh_axes.append(mesh_axis)
  return NamedSharding(mesh, PartitionSpec(*mesh_axes))


def on_mesh(mesh: Mesh | AbstractMesh, function: Callable) -> Callable:
  """Returns a function that knows, while it is traced, the mesh that it is compiled for."""

  @functools.wraps(function)
  def traced(*arguments, **settings):
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
      return function(*arguments, **settings)

  return traced


def num_shares(num_rows: int) -> int:
  """Returns over how many devices of the mesh of `on_mesh` so many rows of a batch are divided."""
  mesh = jax.sharding.get_abstract_mesh()
  size = 1 if mesh.empty else mesh.shape.get("data", 1)
  return 1 if num_rows % size else size


def platform() -> str:
  """Returns the platform of the mesh of `on_mesh`, such as "tpu" or "gpu"; "" without a mesh."""
  device = jax.sharding.get_abstract_mesh().abstract_device
  return "" if device is None else device.platform


def batch_sharding(mesh: Mesh) -> NamedSharding:
  """Returns the sharding of arrays whose first axis is the batch."""
  return sharding(mesh, "batch")


def tree_shardings(mesh: Mesh, abstract_tree: Any, *, layout: Layout = "replicated") -> Any:
  """Returns the shardings of a state from `jax.eval_shape`, given its boxes of logical axes.

  The result matches the unboxed state (`flax.linen.unbox`). Arrays without a box (step counters)
  are replicated. A dimension that its mesh axis does not divide is not split, which only costs
  memory (BERT's 30,522 wordpieces over 4 devices); one warning names all such dimensions.

  Args:
    mesh: A mesh from `make_mesh`.
    abstract_tree: Variables, or a train state with its optimizer state, whose parameters are in
      `flax.linen.LogicallyPartitioned` boxes.
    layout: Which column of the table to use.
  """
  undivided = []

  def leaf_sharding(path, leaf):
    if not isinstance(leaf, meta.Partitioned):
      return sharding(mesh)
    shape = leaf.value.shape
    if len(leaf.names) != len(shape):
      raise ValueError(
        f"{jax.tree_util.keystr(path)} has shape {shape} but logical axes {leaf.names}"
      )
    wanted = sharding(mesh, *leaf.names, layout=layout).spec
    found = divided(mesh, wanted, shape)
    undivided.extend(
      f"{jax.tree_util.keystr(path)} {name}={size}"
      for name, size, *axes in zip(leaf.names, shape, wanted, found, strict=True)
      if axes[0] != axes[1]
    )
    return NamedSharding(mesh, found)

  shardings = jax.tree_util.tree_map_with_path(
    leaf_sharding, abstract_tree, is_leaf=lambda leaf: isinstance(leaf, meta.Partitioned)
  )
  if undivided:
    _logger.warning(
      "mesh %s does not divide these axes, so every device holds them whole: %s",
      dict(mesh.shape),
      ", ".join(undivided),
    )
  return shardings


def divided(mesh: Mesh | AbstractMesh, spec: PartitionSpec, shape: Sequence[int]) -> PartitionSpec:
  """Returns `spec` without the dimensions of an array that their mesh axes do not divide."""
  parts = (math.prod(mesh.shape[name] for name in _names(axis)) for axis in spec)
  return PartitionSpec(
    *(None if size % n else axis for axis, size, n in zip(spec, shape, parts, strict=True))
  )


def _names(mesh_axis: str | tuple[str, ...] | None) -> tuple[str, ...]:
  if mesh_axis is None:
    return ()
  return (mesh_axis,) if isinstance(mesh_axis, str) else mesh_axis


def check_divides(mesh: Mesh, accumulate_steps: int, **batch_sizes: int) -> None:
  """Checks that a mesh shares batches, named in the message, equally in every part of a step."""
  parts = mesh.shape["data"] * accumulate_steps
  for name, batch_size in batch_sizes.items():
    if batch_size % parts:
      raise ValueError(
        f"{name}={batch_size} cannot be split over {mesh.shape['data']} parts of the mesh and "
        f"{accumulate_steps} accumulate_steps; make it a multiple of {parts}"
      )
