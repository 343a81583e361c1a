"""With one process; tests/e2e has the case of two."""

import numpy as np
import pytest

from realm_jax.devices import partitioning, processes


def test_alone_everything_is_its_own():
  rows = {"uid": np.array([2**62 + 1, -3]), "ids": np.arange(4).reshape(2, 2)}
  assert processes.is_first()
  (gathered,) = processes.gather(rows)
  for found in (gathered, processes.gather_rows(rows)):
    assert found.keys() == rows.keys()
    for name in rows:
      assert found[name].dtype == rows[name].dtype
      np.testing.assert_array_equal(found[name], rows[name])
  np.testing.assert_array_equal(processes.own_rows(rows["uid"]), rows["uid"])


def test_alone_an_exchange_returns_at_once_what_it_was_told():
  exchange = processes.Exchange()
  assert exchange([3, 4]).tolist() == [[3, 4]]
  assert exchange([5, 6]).tolist() == [[5, 6]]


@pytest.fixture
def asked_anew():
  """Devices are asked for again, before and after the test."""
  processes.devices.cache_clear()
  yield
  processes.devices.cache_clear()


def test_a_job_logs_its_devices_once(asked_anew, caplog):
  with caplog.at_level("INFO"):
    assert partitioning.make_mesh().size == len(processes.devices()) == 8
  [line] = [record.getMessage() for record in caplog.records if "devices" in record.getMessage()]
  assert line.startswith("devices: 8 x cpu (cpu), processes: 1")


@pytest.mark.parametrize(
  ("promised", "found"), [("tpu:8", "cpu:8"), ("cpu:16", "cpu:8"), ("cpu", "PLATFORM:COUNT")]
)
def test_less_than_the_launcher_promised_is_refused(asked_anew, monkeypatch, promised, found):
  monkeypatch.setenv(processes.PROMISED, promised)
  with pytest.raises(processes.DeviceError, match=f"{processes.PROMISED}={promised}.*{found}"):
    partitioning.make_mesh()
  monkeypatch.setenv(processes.PROMISED, "cpu:4")
  assert partitioning.make_mesh().size == 8
