"""Parameters of our modules in t5x's form, with axis names as a separate collection."""

from typing import Any

import flax.linen as nn
import flax.traverse_util
from flax.linen import partitioning as flax_partitioning

# Our names equal t5x's except this one; t5x's standard rules do not shard axes they do not name.
_T5X_NAMES = {"position": "abspos_buckets"}


def variables_of(boxed: dict) -> dict[str, dict]:
  """Returns the collections `params` and `params_axes` of boxed parameters."""
  axes = {}
  flat: dict[tuple[str, ...], Any] = flax.traverse_util.flatten_dict(boxed)
  for (*parts, name), box in flat.items():
    names = tuple(_T5X_NAMES.get(axis, axis) for axis in box.names)
    axes[*parts, f"{name}_axes"] = flax_partitioning.AxisMetadata(names=names)
  return {"params": nn.unbox(boxed), "params_axes": flax.traverse_util.unflatten_dict(axes)}
