"""One publisher per directory: a second is rejected, and a killed one does not block."""

import contextlib
import signal
import subprocess
import sys
import time
import uuid

import pytest

from realm_jax.index import generations, publisher_lock

HOLDER = """
import sys, time
from realm_jax.index import publisher_lock
with publisher_lock.hold(sys.argv[1], renew_seconds=0.1, expiry_seconds=1.0):
  print("held", flush=True)
  time.sleep(20)
"""


@pytest.fixture(params=["disk", "object store"])
def index(request, tmp_path):
  if request.param == "disk":
    return str(tmp_path / "index")
  request.getfixturevalue("emulated_gcs")
  return f"gs://bucket/{uuid.uuid4().hex}/index"


def hold(index):
  return publisher_lock.hold(index, renew_seconds=0.1, expiry_seconds=1.0)


@contextlib.contextmanager
def holder_elsewhere(index):
  command = [sys.executable, "-c", HOLDER, index]
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()


def test_the_second_publisher_is_refused_by_the_name_of_the_first(index):
  with holder_elsewhere(index) as process:
    refused = f"process {process.pid} on .* is already publishing to {index}; wait until"
    with pytest.raises(publisher_lock.AnotherPublisherError, match=refused), hold(index):
      pass


def test_the_lock_of_a_killed_publisher_does_not_outlive_it(index):
  with holder_elsewhere(index) as process:
    process.send_signal(signal.SIGKILL)
    process.wait()
    with hold(index) as still_held:
      still_held()


def test_a_lock_is_free_when_it_is_left_and_is_no_generation(index):
  for _ in range(2):
    with hold(index) as still_held:
      still_held()
      assert generations.newest(index) is None
  with hold(index + "_other"):
    pass


def test_a_publisher_whose_lease_was_taken_over_learns_it_before_it_publishes(emulated_gcs):
  index = f"gs://bucket/{uuid.uuid4().hex}/index"
  with hold(index) as still_held:
    name = f"{index.removeprefix('gs://bucket/')}/{publisher_lock.LOCK_FILE}"
    emulated_gcs.write(name, b"process 1 on elsewhere, lease 1, renewal 1")
    with pytest.raises(
      publisher_lock.AnotherPublisherError, match="process 1 on elsewhere, .* has taken over gs://"
    ):
      still_held()
  assert emulated_gcs.read(name).startswith(b"process 1 on elsewhere")  # it is not removed


def test_a_lease_outlives_an_outage(emulated_gcs):
  with hold(f"gs://bucket/{uuid.uuid4().hex}/index") as still_held:
    emulated_gcs.refuse(lambda method, path: method == "POST")
    time.sleep(0.3)
    emulated_gcs.refuse(lambda method, path: False)
    still_held()
