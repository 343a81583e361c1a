"""On simulated machines, trainer and builder never open the same exclusive device."""

import pytest

from realm_jax.launching import device_shares


@pytest.fixture
def machine(tmp_path):
  """`machine(gpus=n, **variables)` returns arguments that describe a machine."""

  def make(gpus=0, **variables):
    for number in range(gpus):
      (tmp_path / f"nvidia{number}").touch()
    (tmp_path / "nvidiactl").touch()
    return {"environment": variables, "devices": str(tmp_path)}

  return make


def cuda(devices):
  return {"CUDA_VISIBLE_DEVICES": devices}


def test_on_a_machine_without_accelerators_both_compute_on_the_cpu(machine):
  shares = device_shares.share(None, **machine(JAX_PLATFORMS="cpu"))
  assert (shares.trainer, shares.builder) == ({}, {})
  assert shares.description == "trainer on cpu, index builder on cpu"


@pytest.mark.parametrize(
  ("gpus", "visible", "wanted", "trainer", "builder"),
  [
    (4, {}, None, "0,1,2", "3"),
    (4, {}, "0,1", "2,3", "0,1"),
    (8, cuda("4,5,6"), None, "4,5", "6"),
    (2, cuda("GPU-a,GPU-b"), "GPU-a", "GPU-b", "GPU-a"),
  ],
)
def test_gpus_are_split(machine, gpus, visible, wanted, trainer, builder):
  shares = device_shares.share(wanted, **machine(gpus, JAX_PLATFORMS="cuda", **visible))
  assert (shares.trainer, shares.builder) == (cuda(trainer), cuda(builder))
  assert shares.description == f"trainer on GPU {trainer}, index builder on GPU {builder}"


def test_a_single_gpu_is_shared_with_a_part_of_its_memory_each(machine):
  shares = device_shares.share(None, **machine(1, JAX_PLATFORMS="cuda,cpu"))
  fractions = [float(part["XLA_CLIENT_MEM_FRACTION"]) for part in (shares.trainer, shares.builder)]
  assert sum(fractions) < 1 and fractions[0] > fractions[1] > 0
  assert shares.description == (
    "trainer and index builder share GPU 0, with 0.70 and 0.20 of its memory"
  )
  # Set to nothing is not set.
  unset = {"XLA_CLIENT_MEM_FRACTION": "", "JAX_PLATFORMS": "cuda"}
  assert device_shares.share(None, **machine(1, **unset)).trainer == shares.trainer
  # What the user has set stays, under the old name as well.
  given = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.4", "JAX_PLATFORMS": "cuda"}
  shares = device_shares.share(None, **machine(1, **given))
  assert (shares.trainer, shares.builder) == ({}, {})


@pytest.mark.parametrize(
  ("variables", "fraction"),
  [
    ({}, None),
    ({"XLA_CLIENT_MEM_FRACTION": ".9"}, 0.9),
    ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "4.0", "XLA_CLIENT_MEM_FRACTION": ""}, 4.0),
  ],
)
def test_the_share_of_memory_has_two_names(variables, fraction):
  assert device_shares.memory_fraction(variables) == fraction


@pytest.mark.parametrize("text", [".XX", "75%", "0", "-1", "nan", "inf"])
def test_a_share_of_memory_that_is_none_is_refused(text):
  with pytest.raises(ValueError, match=f"XLA_CLIENT_MEM_FRACTION={text} is no share of a GPU's"):
    device_shares.memory_fraction({"XLA_CLIENT_MEM_FRACTION": text})


@pytest.mark.parametrize(
  ("gpus", "platform", "wanted", "message"),
  [
    (0, "tpu", None, "cannot both open the TPU of this machine; give --builder_devices=cpu, or"),
    (0, "tpu", "0", "cannot both open the TPU"),
    (0, "cpu", "0", "builder_devices=0, but there are no GPUs here; leave it out"),
    (2, "cuda", "2", "builder_devices=2 of the GPUs 0,1; give some of them, not all, or cpu"),
    (2, "cuda", "0,1", "give some of them, not all, or cpu"),
  ],
)
def test_what_cannot_work_is_refused(machine, gpus, platform, wanted, message):
  with pytest.raises(ValueError, match=message):
    device_shares.share(wanted, **machine(gpus, JAX_PLATFORMS=platform))
