"""No accelerator is looked for where there is none; programs are kept by kind of CPU."""

import os

import pytest

from realm_jax.devices import backend


@pytest.mark.parametrize(
  ("files", "given", "found"),
  [
    ((), None, "cpu"),
    ((), "tpu", "tpu"),
    (("accel0",), None, None),
    (("vfio/0",), None, None),
    (("vfio/vfio",), None, "cpu"),
    (("nvidia0", "nvidiactl"), None, None),
  ],
)
def test_libtpu_is_not_asked_where_no_accelerator_is(monkeypatch, tmp_path, files, given, found):
  (tmp_path / "dev/vfio").mkdir(parents=True)
  for file in files:
    (tmp_path / "dev" / file).touch()
  (tmp_path / "libtpu.py").touch()
  monkeypatch.syspath_prepend(tmp_path)
  accelerators = backend.accelerators(str(tmp_path / "dev"))
  monkeypatch.setattr(backend, "accelerators", lambda: accelerators)
  monkeypatch.delenv("JAX_PLATFORMS", raising=False)
  if given:
    monkeypatch.setenv("JAX_PLATFORMS", given)
  backend.prepare()
  assert os.environ.get("JAX_PLATFORMS") == found


def test_processors_of_one_name_are_told_apart_by_their_flags(monkeypatch):
  fields = {"model name": "Xeon", "flags": "avx2 amx"}
  monkeypatch.setattr(backend.system, "processor", fields.get)
  programs = backend.programs_directory("cache")
  assert backend.programs_directory("cache") == programs
  fields["flags"] = "avx2"
  assert backend.programs_directory("cache") != programs


@pytest.mark.parametrize(
  ("wanted", "reason", "file", "found"),
  [
    ("cuda", "", "jax/_src/xla_bridge.py", "no device of JAX_PLATFORMS=cuda; unset it"),
    ("tpu", "Unable to", "jax/_src/xla_bridge.py", "of JAX_PLATFORMS=tpu (Unable to); unset it"),
    ("cuda", "", "jax/_src/core.py", ""),
    ("", "", "jax/_src/xla_bridge.py", ""),
  ],
)
def test_devices_that_are_not_there_are_named(monkeypatch, wanted, reason, file, found):
  monkeypatch.setenv("JAX_PLATFORMS", wanted)
  with pytest.raises(AssertionError) as caught:
    exec(compile(f"raise AssertionError({reason!r})", f"/lib/{file}", "exec"))
  said = backend.not_started(caught.value)
  assert found in said and bool(found) == bool(said)
