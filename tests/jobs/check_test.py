"""The check of a machine: what works, and what it says of what does not."""

import re

import jax
import jax.numpy as jnp
import pytest

from realm_jax.devices import partitioning
from realm_jax.index import device_searcher
from realm_jax.jobs.training import check as check_module
from realm_jax.models import fused_attention

pytestmark = pytest.mark.timeout(600)  # compiles a dozen programs


@pytest.fixture
def one(tmp_path):
  """The checks on one device."""
  return check_module._Checks(
    directory=str(tmp_path / "check"),
    local=str(tmp_path / "local"),
    mesh=partitioning.make_mesh(devices=jax.devices()[:1]),
    pretraining=check_module._TINY,
    storage_bytes=1 << 20,
  )


def verdicts(text):
  """Returns the verdict of each line by its name."""
  return {name: verdict for verdict, name in re.findall(r"^(works|FAILS) +(.*?)  +", text, re.M)}


def test_everything_works_on_eight_devices(tmp_path, capsys):
  assert check_module.check(workdir=str(tmp_path / "bucket"), storage_mib=1) == 0
  text = capsys.readouterr().out
  found = verdicts(text)
  assert len(found) == 12 == len(text.splitlines()) - 1 and set(found.values()) == {"works"}
  assert "8 x cpu" in text and "right on 8 devices" in text
  assert "generation 1 taken up" in text and "of the roofline" in text
  assert text.endswith(f"all works; {tmp_path / 'bucket'} was written\n")
  (directory,) = (tmp_path / "bucket").iterdir()
  assert {"checkpoints", "generations", "run", "index"} < {
    path.name for path in directory.iterdir()
  }


def test_one_device_is_enough(one):
  checks = (one.collectives, lambda: one.search(None), one.checkpoint, one.generation)
  assert all(check() for check in checks)
  assert one.devices().startswith("1 x cpu")


def test_what_fails_is_named_with_the_way_round_and_the_rest_is_still_tried(
  tmp_path, capsys, monkeypatch
):
  lines = check_module._Checks.lines
  monkeypatch.setattr(
    check_module._Checks, "lines", lambda self: (x for x in lines(self) if "train" not in x[0])
  )
  # A kernel that multiplies wrongly, a search that finds nothing, a bucket that refuses.
  dot = fused_attention._dot
  monkeypatch.setattr(fused_attention, "_dot", lambda *arguments: 1.05 * dot(*arguments))
  search = device_searcher.DeviceSearcher.search

  def finds_nothing(self, queries_BxE, k):
    found = search(self, queries_BxE, k)
    return found if self._recall_target is None else found._replace(ids_BxK=found.ids_BxK * 0)

  monkeypatch.setattr(device_searcher.DeviceSearcher, "search", finds_nothing)

  def refuses(*_, **__):
    raise PermissionError("403 the account may not write")

  monkeypatch.setattr(check_module.generations, "publish", refuses)
  assert check_module.check(workdir=str(tmp_path / "bucket"), storage_mib=1) == 1
  text = capsys.readouterr().out
  wrong = {name for name, verdict in verdicts(text).items() if verdict == "FAILS"}
  attention = {name for name in verdicts(text) if name.startswith("fused attention")}
  assert wrong == attention | {"search, approximate", "generation"} and len(attention) == 4
  assert text.count("--attention=plain") == 4 and "target_recall" in text
  assert "PermissionError: 403 the account may not write\n       see docs/object_store.md" in text
  assert text.endswith(f"6 of 10 do not work; {tmp_path / 'bucket'} was written\n")


@pytest.mark.parametrize("wrong", ["bits", "keep"])
def test_the_kernels_dropout_is_compared(wrong, monkeypatch):
  exact = check_module.attention_error(2, 8, 2, 8, dtype="float32", keep=0.5)
  assert exact < 64 * 2**-23
  kept = fused_attention.kept
  if wrong == "keep":
    monkeypatch.setattr(fused_attention, "kept", lambda *a, keep, **k: kept(*a, keep=0.6, **k))
  else:
    monkeypatch.setattr(
      fused_attention, "kept", lambda *a, **k: jnp.roll(kept(*a, **k), 1, axis=-1)
    )
  assert check_module.attention_error(2, 8, 2, 8, dtype="float32", keep=0.5) > 0.1


@pytest.mark.parametrize("factor", [0.99, 1.0, 1.01])
def test_attention_that_is_one_percent_off_is_found(factor, monkeypatch):
  right = fused_attention.fused_attention
  monkeypatch.setattr(fused_attention, "fused_attention", lambda *a: factor * right(*a))
  error = check_module.attention_error(4, 12, 2, 8, dtype="bfloat16", keep=1.0)
  assert (error > 8 * 2**-8) == (factor != 1.0)


def test_a_search_that_loses_the_best_passage_is_found(monkeypatch, tmp_path):
  class Losing(device_searcher.DeviceSearcher):
    def search(self, queries_BxE, k):
      found = super().search(queries_BxE, k + 1)
      return found._replace(ids_BxK=found.ids_BxK[:, 1:], scores_BxK=found.scores_BxK[:, 1:])

  checks = object.__new__(check_module._Checks)
  checks.on_cpu, checks.mesh = True, partitioning.make_mesh()
  assert "recall@10" in checks.search(0.95)
  monkeypatch.setattr(device_searcher, "DeviceSearcher", Losing)
  with pytest.raises(check_module.CheckError, match=r"recall@10|best passage is found for 0\.000"):
    checks.search(0.95)


def test_a_machine_whose_accelerator_is_not_used_is_told(one, monkeypatch):
  monkeypatch.setattr(check_module.backend, "accelerators", lambda: ["/dev/accel0"])
  with pytest.raises(check_module.CheckError, match="on the CPU, but the machine has /dev/accel0"):
    one.devices()


def test_a_directory_of_something_else_is_refused(tmp_path):
  (tmp_path / "thesis.tex").write_text("mine")
  with pytest.raises(ValueError, match="thesis.tex, which is no part of a check"):
    check_module.check(workdir=str(tmp_path))
