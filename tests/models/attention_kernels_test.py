"""Which kernel is chosen, and what is said if none is."""

import types

import jax
import pytest

from realm_jax.models import attention_kernels
from realm_jax.models.attention_kernels import choose

SIZES = {"length": 384, "head_size": 64, "dtype": "bfloat16", "dropout_rate": 0.0}


@pytest.fixture
def on(monkeypatch):
  """Takes the platform of the mesh."""
  return lambda name: monkeypatch.setattr(attention_kernels.partitioning, "platform", lambda: name)


@pytest.mark.parametrize(
  ("platform", "setting", "sizes", "kernel"),
  [
    ("gpu", "auto", {}, "cudnn"),
    ("gpu", "fused", {}, "cudnn"),
    ("gpu", "plain", {}, "plain"),
    ("gpu", "auto", {"dropout_rate": 0.1}, "plain"),
    ("gpu", "auto", {"dtype": "float32"}, "plain"),
    ("gpu", "auto", {"head_size": 20}, "plain"),
    ("gpu", "auto", {"head_size": 256}, "plain"),
    ("tpu", "auto", {"dropout_rate": 0.1}, "pallas"),
    ("tpu", "auto", {"length": 513}, "plain"),
    ("tpu", "auto", {"dtype": "float64"}, "plain"),
    ("tpu", "plain", {}, "plain"),
    ("cpu", "auto", {}, "plain"),
    ("cpu", "fused", {"dropout_rate": 0.1}, "pallas"),
    ("", "auto", {}, "plain"),
  ],
)
def test_the_first_kernel_that_can_is_chosen(on, platform, setting, sizes, kernel):
  on(platform)
  assert choose(setting, **{**SIZES, **sizes}) == kernel


@pytest.mark.parametrize(
  ("platform", "sizes", "message"),
  [
    ("gpu", {"dropout_rate": 0.1}, "attention_dropout_rate=0.1 needs plain attention on GPUs"),
    ("gpu", {"dtype": "float32"}, "takes no float32; set dtype='bfloat16'"),
    ("gpu", {"head_size": 20}, "multiple of 8 up to 128, not 20"),
    ("tpu", {"length": 513}, "at most 512 positions, not 513"),
    ("cpu", {"dtype": "float64"}, "use 'plain' with dtype='float64'"),
  ],
)
def test_who_insists_on_a_kernel_hears_why_there_is_none(on, platform, sizes, message):
  on(platform)
  with pytest.raises(ValueError, match=message):
    choose("fused", **{**SIZES, **sizes})


def test_a_gpu_without_a_kernel_is_never_silent(on, caplog):
  attention_kernels._warn.cache_clear()
  on("gpu")
  choose("auto", **SIZES)
  assert not caplog.messages
  choose("auto", **{**SIZES, "dropout_rate": 0.1})
  assert "attention is not fused: cuDNN" in caplog.text and "set it to 0" in caplog.text


@pytest.mark.parametrize(
  ("name", "capability", "kernel"),
  [
    ("Tesla T4", "7.5", "plain"),
    ("AMD Instinct MI250X", "gfx90a", "plain"),
    ("NVIDIA A100-SXM4-40GB", "8.0", "cudnn"),
    ("NVIDIA H100 80GB HBM3", "9.0a", "cudnn"),
    ("NVIDIA RTX PRO 6000", "12.0", "cudnn"),
  ],
)
def test_gpus_without_cudnns_kernel_compute_plain_attention(
  on, monkeypatch, name, capability, kernel
):
  device = types.SimpleNamespace(device_kind=name, compute_capability=capability)
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  monkeypatch.setattr(jax, "local_devices", lambda: [device])
  on("gpu")
  assert choose("auto", **SIZES) == kernel
  if kernel == "plain":
    with pytest.raises(ValueError, match=f"from Ampere on, not {name}; or use"):
      choose("fused", **SIZES)
