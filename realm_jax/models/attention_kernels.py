"""Which kernel computes attention, and cuDNN's, which GPUs use.

A kernel is one that writes nothing of the logits' size. Where none can run, attention is `plain`:
products, softmax and dropout by XLA (`bert.py`).
"""

import functools
import logging
from typing import Literal

import jax
import jax.numpy as jnp

from realm_jax.devices import partitioning
from realm_jax.models import fused_attention

_logger = logging.getLogger(__name__)

Kernel = Literal["plain", "cudnn", "pallas"]
Setting = Literal["auto", "plain", "fused"]
_LARGEST_HEAD = 128  # cuDNN's of every GPU
_LEAST_CAPABILITY = 8  # Ampere's


def choose(
  setting: Setting, *, length: int, head_size: int, dtype: str, dropout_rate: float
) -> Kernel:
  """Returns the first kernel that can compute attention on the mesh of `partitioning.on_mesh`.

  Args:
    setting: `BertConfig.attention`: "fused" insists on a kernel, "auto" takes one where it is fast.
    length: Positions.
    head_size: Width of a head.
    dtype: Dtype of queries, keys and values.
    dropout_rate: Dropout rate of the probabilities in this program.

  Raises:
    ValueError: If no kernel can, and the setting insists.
  """
  if setting == "plain":
    return "plain"
  platform = partitioning.platform()
  kernels: dict[Kernel, str] = {
    "cudnn": _refused_by_cudnn(platform, head_size, dtype, dropout_rate),
    "pallas": _refused_by_pallas(platform, length, dtype, emulated=setting == "fused"),
  }
  for kernel, refusal in kernels.items():
    if not refusal:
      return kernel
  if setting == "fused":
    reason = kernels["cudnn" if platform == "gpu" else "pallas"]
    raise ValueError(f"attention='fused': {reason}; or use 'auto' or 'plain'")
  if platform == "gpu":
    _warn(kernels["cudnn"])
  return "plain"


def with_gaps(setting: Setting) -> Setting:
  """Returns the setting for sequences with wordpieces to be ignored before their end.

  Raises:
    ValueError: If it insists on cuDNN's kernel, which takes lengths instead of a mask.
  """
  if partitioning.platform() != "gpu":
    return setting
  reason = "cuDNN's kernel takes lengths, so it cannot leave out the wordpieces of ignored_ids"
  if setting == "fused":
    raise ValueError(f"attention='fused': {reason}; use 'auto' or 'plain'")
  if setting == "auto":
    _warn(reason)
  return "plain"


@functools.cache
def _warn(reason: str) -> None:
  """Says once a process why attention has no kernel."""
  _logger.warning("attention is not fused: %s", reason)


def _refused_by_cudnn(platform: str, head_size: int, dtype: str, dropout_rate: float) -> str:
  """Returns why cuDNN cannot compute attention, and the way out; "" if it can."""
  if platform != "gpu":
    return "cuDNN runs on GPUs"
  if too_old := _too_old():
    return f"cuDNN's kernel needs an NVIDIA GPU from Ampere on, not {too_old}"
  if dropout_rate:
    # It draws by a number that is part of the program, not by that of the step.
    return (
      f"cuDNN's kernel has no dropout that another step or device could draw again, so "
      f"attention_dropout_rate={dropout_rate} needs plain attention on GPUs; set it to 0"
    )
  if dtype != "bfloat16":
    return f"cuDNN's kernel takes no {dtype}; set dtype='bfloat16'"
  if head_size > _LARGEST_HEAD or head_size % 8:
    return f"cuDNN's kernel takes heads of a multiple of 8 up to {_LARGEST_HEAD}, not {head_size}"
  return ""


def _too_old() -> str:
  """Returns the name of this machine's GPU if it is one for which cuDNN has no kernel."""
  if jax.default_backend() != "gpu":
    return ""  # a program for GPUs that are not here; all that can be named are newer
  device = jax.local_devices()[0]
  major = device.compute_capability.partition(".")[0]  # "gfx90a" and the like are AMD's
  is_new = major.isdecimal() and int(major) >= _LEAST_CAPABILITY
  return "" if is_new else device.device_kind


def _refused_by_pallas(platform: str, length: int, dtype: str, *, emulated: bool) -> str:
  """Returns why our kernel cannot compute attention, or is slow at it; "" if it can."""
  if platform == "gpu" or (platform != "tpu" and not emulated):
    return "our kernel runs on TPUs"
  if dtype == "float64":
    return "our kernel computes in float32; use 'plain' with dtype='float64'"
  if length > fused_attention.LONGEST:
    return f"our kernel takes at most {fused_attention.LONGEST} positions, not {length}"
  return ""


def by_lengths(
  query_FxLxHxG: jax.Array,
  key_FxLxHxG: jax.Array,
  value_FxLxHxG: jax.Array,
  mask_FxL: jax.Array,
  *,
  implementation: Literal["cudnn", "xla"] = "cudnn",
) -> jax.Array:
  """Returns the context `[F, L, H, G]` of sequences padded at the end, without a mask in memory.

  Positions of padding have any finite context.
  """
  length = mask_FxL.shape[1]
  # cuDNN's gradient wants an even number of positions.
  padding = ((0, 0), (0, length % 2), (0, 0), (0, 0))
  factors = [jnp.pad(rows, padding) for rows in (query_FxLxHxG, key_FxLxHxG, value_FxLxHxG)]
  # A sequence of nothing but padding attends to its first position.
  lengths_F = jnp.maximum(jnp.sum(mask_FxL, axis=1, dtype=jnp.int32), 1)
  context_FxLxHxG = jax.nn.dot_product_attention(
    *factors,
    query_seq_lengths=lengths_F,
    key_value_seq_lengths=lengths_F,
    implementation=implementation,
  )
  return context_FxLxHxG[:, :length]
