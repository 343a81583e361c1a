"""The check of a machine: what works, and what it says of what does not."""

import dataclasses
import re
import types

import jax
import jax.numpy as jnp
import pytest

from realm_jax.devices import partitioning
from realm_jax.jobs.training.check import check
from realm_jax.models import fused_attention
from realm_jax.training.machines import machine_checks
from realm_jax.training.machines.machine_checks import CheckError, MachineChecks

pytestmark = pytest.mark.timeout(600)  # compiles a dozen programs


def verdicts(text):
  """Returns the verdict of each line by its name."""
  return {name: verdict for verdict, name in re.findall(r"^(works|FAILS) +(.*?)  +", text, re.M)}


@pytest.mark.slow
def test_everything_works_on_all_devices(tmp_path, capsys):
  assert check(workdir=str(tmp_path / "bucket"), storage_mib=1) == 0
  text = capsys.readouterr().out
  found = verdicts(text)
  assert len(found) == 7 == len(text.splitlines()) - 1 and set(found.values()) == {"works"}
  assert f"{jax.device_count()} x cpu" in text and "of the roofline" in text
  assert "MiB/s (1 MiB)" in text
  assert text.endswith(f"all works; {tmp_path / 'bucket'} was written\n")
  (directory,) = (tmp_path / "bucket").iterdir()
  assert [path.name for path in directory.iterdir()] == ["checkpoints"]


def test_what_fails_is_named_with_the_way_round_and_the_rest_is_still_tried(
  tmp_path, capsys, monkeypatch
):
  # A kernel that multiplies wrongly, a bucket that refuses.
  dot = fused_attention._dot
  monkeypatch.setattr(fused_attention, "_dot", lambda *arguments: 1.05 * dot(*arguments))

  def refuses(*_, **__):
    raise PermissionError("403 the account may not write")

  monkeypatch.setattr(machine_checks.orbax_files, "Checkpointer", refuses)
  monkeypatch.setattr(MachineChecks, "step", lambda self: "fast")
  assert check(workdir=str(tmp_path / "bucket"), storage_mib=1) == 1
  text = capsys.readouterr().out
  wrong = {name for name, verdict in verdicts(text).items() if verdict == "FAILS"}
  attention = {name for name in verdicts(text) if name.startswith("fused attention")}
  assert wrong == attention | {"storage"} and len(attention) == 4
  assert text.count("--attention=plain") == 4
  assert "PermissionError: 403 the account may not write\n       see docs/object_store.md" in text
  assert text.endswith(f"5 of 7 do not work; {tmp_path / 'bucket'} was written\n")


@pytest.mark.parametrize("wrong", ["bits", "keep"])
def test_the_kernels_dropout_is_compared(wrong, monkeypatch):
  exact = machine_checks.attention_error(2, 8, 2, 8, dtype="float32", keep=0.5)
  assert exact < 64 * 2**-23
  kept = fused_attention.kept
  if wrong == "keep":
    monkeypatch.setattr(fused_attention, "kept", lambda *a, keep, **k: kept(*a, keep=0.6, **k))
  else:
    monkeypatch.setattr(
      fused_attention, "kept", lambda *a, **k: jnp.roll(kept(*a, **k), 1, axis=-1)
    )
  assert machine_checks.attention_error(2, 8, 2, 8, dtype="float32", keep=0.5) > 0.1


@pytest.mark.parametrize("factor", [0.99, 1.0, 1.01])
def test_attention_that_is_one_percent_off_is_found(factor, monkeypatch):
  right = fused_attention.fused_attention
  monkeypatch.setattr(fused_attention, "fused_attention", lambda *a: factor * right(*a))
  error = machine_checks.attention_error(4, 12, 2, 8, dtype="bfloat16", keep=1.0)
  assert (error > 8 * 2**-8) == (factor != 1.0)


def test_a_machine_whose_accelerator_is_not_used_is_told(monkeypatch):
  mesh = partitioning.make_mesh(devices=jax.devices()[:1])
  one = MachineChecks(
    directory="", mesh=mesh, pretraining=machine_checks._TINY, storage_bytes=1 << 20
  )
  assert one.devices().startswith("1 x cpu")
  monkeypatch.setattr(machine_checks.backend, "accelerators", lambda: ["/dev/accel0"])
  with pytest.raises(CheckError, match="on the CPU, but the machine has /dev/accel0"):
    one.devices()


@pytest.mark.parametrize(
  ("name", "capability", "settings"),
  [
    ("Tesla T4", "7.5", {}),
    ("AMD Instinct MI300X", "gfx942", {}),
    ("NVIDIA L4", "8.9", {"hidden_size": 24}),  # heads of 12
    ("NVIDIA L4", "8.9", {"attention": "plain"}),
  ],
)
def test_attention_that_has_no_kernel_here_is_no_failure(monkeypatch, name, capability, settings):
  tiny = machine_checks._TINY.on_accelerators()
  bert = dataclasses.replace(tiny.model.knowledge_augmented_encoder, **settings)
  model = dataclasses.replace(tiny.model, knowledge_augmented_encoder=bert)
  checks = MachineChecks(
    directory="",
    mesh=partitioning.make_mesh(devices=jax.devices()[:1]),
    pretraining=dataclasses.replace(tiny, model=model),
    storage_bytes=1 << 20,
  )
  checks.on_cpu = False
  device = types.SimpleNamespace(device_kind=name, compute_capability=capability)
  monkeypatch.setattr(partitioning, "platform", lambda: "gpu")
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  monkeypatch.setattr(jax, "local_devices", lambda: [device])
  assert "computes plain attention here" in checks.attention("bfloat16", 1.0)


def test_a_directory_of_something_else_is_refused(tmp_path):
  (tmp_path / "thesis.tex").write_text("mine")
  with pytest.raises(ValueError, match="thesis.tex, which is no part of a check"):
    check(workdir=str(tmp_path))
