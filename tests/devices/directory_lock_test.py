"""One job per directory: a second is rejected, and a killed one does not block."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
import uuid

import pytest

from realm_jax.devices import directory_lock
from realm_jax.foundations import atomic_files
from realm_jax.index import generations

HOLDER = """
import sys, time
from realm_jax.devices import directory_lock
kind = directory_lock.WORKDIR
with directory_lock.hold(sys.argv[1], kind=kind, renew_seconds=0.1, expiry_seconds=1.0):
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
  return directory_lock.hold(
    index, kind=directory_lock.WORKDIR, renew_seconds=0.1, expiry_seconds=1.0
  )


@contextlib.contextmanager
def holder_elsewhere(index):
  command = [sys.executable, "-c", HOLDER, index]
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()


def test_the_second_is_refused_by_the_name_of_the_first_until_that_is_killed(index):
  with holder_elsewhere(index) as process:
    refused = f"process {process.pid} on .* is already working in {index}"
    with pytest.raises(directory_lock.DirectoryInUseError, match=refused), hold(index):
      pass
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
    name = f"{index.removeprefix('gs://bucket/')}/{directory_lock.LOCK_FILE}"
    emulated_gcs.write(name, b"process 1 on elsewhere, lease 1")
    with pytest.raises(
      directory_lock.DirectoryInUseError, match="process 1 on elsewhere, .* has taken over gs://"
    ):
      still_held()
  assert emulated_gcs.read(name).startswith(b"process 1 on elsewhere")  # it is not removed


def test_a_lease_outlives_an_outage(emulated_gcs):
  with hold(f"gs://bucket/{uuid.uuid4().hex}/index") as still_held:
    emulated_gcs.refuse(lambda method, path: method == "POST")
    time.sleep(0.3)
    emulated_gcs.refuse(lambda method, path: False)
    still_held()


def test_deleting_the_lock_file_frees_nothing(tmp_path):
  with holder_elsewhere(str(tmp_path)) as process:
    (tmp_path / directory_lock.LOCK_FILE).unlink()
    with (
      pytest.raises(directory_lock.DirectoryInUseError, match="another process"),
      hold(str(tmp_path)),
    ):
      pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    with hold(str(tmp_path)):
      pass


def test_a_file_system_without_locks_on_directories_has_one_on_the_file(tmp_path, monkeypatch):
  locked = atomic_files.locked

  def as_on_nfs(path):
    if os.path.isdir(path):
      raise OSError(errno.EBADF, "Bad file descriptor")
    return locked(path)

  monkeypatch.setattr(atomic_files, "locked", as_on_nfs)
  with hold(str(tmp_path)):
    refused = f"process {os.getpid()} on "
    with pytest.raises(directory_lock.DirectoryInUseError, match=refused), hold(str(tmp_path)):
      pass
  with hold(str(tmp_path)):
    pass


def test_a_training_shares_the_lock_of_its_job_and_no_other(tmp_path):
  workdir = str(tmp_path)
  with directory_lock.hold_for_job(workdir):
    with hold(f"{workdir}/"), hold(f"{workdir}/below"):
      pass
    with subprocess.Popen([sys.executable, "-c", HOLDER, workdir], stderr=subprocess.PIPE) as other:
      assert f"process {os.getpid()} on " in other.stderr.read().decode()
  with (
    holder_elsewhere(workdir),
    pytest.raises(directory_lock.DirectoryInUseError),
    directory_lock.hold_for_job(workdir),
  ):
    pass
