import os
import signal
import stat
import subprocess
import sys

import pytest

from realm_jax.foundations import array_folder, atomic_files
from realm_jax.foundations.output_kinds import DirectoryKind

ARRAYS = array_folder.Kind(kind="a", format=1, remake="")
KIND = DirectoryKind(name="a thing", files=("*", "*/"))


@pytest.fixture(params=["swapped", "moved aside"])
def replaced(request, monkeypatch):
  """Replaces directories as on a system that can swap two, and as on others."""
  if request.param == "moved aside":
    monkeypatch.setattr(atomic_files, "_swap", lambda *_: False)


def test_a_file_is_replaced_whole(tmp_path):
  path = tmp_path / "notes.txt"
  atomic_files.write_text(path, "old, and longer")
  atomic_files.write_text(path, "neu: é")
  assert path.read_bytes() == "neu: é".encode()
  assert os.listdir(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_permissions_are_those_of_the_umask(tmp_path, umask):
  before = os.umask(umask)
  try:
    atomic_files.write_text(tmp_path / "file", "old")
    atomic_files.write_text(tmp_path / "file", "new")
    atomic_files.write_bytes(tmp_path / "private", b"", mode=0o600)
    for name in ("old", "new"):
      with atomic_files.new_directory(tmp_path / "store", kind=KIND) as directory:
        atomic_files.write_text(f"{directory}/{name}", "")
  finally:
    os.umask(before)
  modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
  assert modes == {
    "file": 0o666 & ~umask,
    "private": 0o600,
    "store": 0o777 & ~umask,
    "new": 0o666 & ~umask,
  }


@pytest.mark.usefixtures("replaced")
def test_a_directory_is_replaced_as_a_whole(tmp_path):
  path = tmp_path / "store"
  for name in ("old", "new"):
    with atomic_files.new_directory(path, kind=KIND) as directory:
      open(os.path.join(directory, name), "w").close()
  assert os.listdir(path) == ["new"]
  assert os.listdir(tmp_path) == ["store"]


def test_a_failed_directory_leaves_the_old_one_and_nothing_else(tmp_path):
  path = tmp_path / "store"
  with atomic_files.new_directory(path, kind=KIND) as directory:
    open(os.path.join(directory, "old"), "w").close()
  with pytest.raises(KeyboardInterrupt), atomic_files.new_directory(path, kind=KIND) as directory:
    open(os.path.join(directory, "new"), "w").close()
    raise KeyboardInterrupt
  assert os.listdir(path) == ["old"]
  assert os.listdir(tmp_path) == ["store"]


def test_the_old_directory_comes_back_when_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
  path = tmp_path / "store"
  path.mkdir()
  (path / "old").touch()
  rename = os.rename

  def fail_for_the_new(source, target):
    if os.path.exists(os.path.join(source, "new")) and not os.path.exists(target):
      raise OSError("no space left")
    rename(source, target)

  monkeypatch.setattr(os, "rename", fail_for_the_new)
  monkeypatch.setattr(atomic_files, "_swap", lambda *_: False)
  with (
    pytest.raises(OSError, match="no space"),
    atomic_files.new_directory(path, kind=KIND) as directory,
  ):
    open(os.path.join(directory, "new"), "w").close()
  assert os.listdir(path) == ["old"]
  assert os.listdir(tmp_path) == ["store"]


def test_a_directory_that_a_kill_left_aside_is_put_back(tmp_path):
  path, aside = tmp_path / "store", tmp_path / ".store.replaced"
  for _ in range(2):  # the second time, the new one was in its place already
    aside.mkdir()
    (aside / "old").touch()
    with pytest.raises(KeyboardInterrupt), atomic_files.new_directory(path, kind=KIND):
      raise KeyboardInterrupt
    assert os.listdir(path) == ["old"]
    assert os.listdir(tmp_path) == ["store"]


def test_what_a_killed_job_left_is_removed_but_not_that_of_a_living_one(tmp_path):
  path = tmp_path / "store"
  unfinished = f"""
import time
from realm_jax.foundations import array_folder, atomic_files
from tests.foundations.atomic_files_test import KIND
with atomic_files.new_directory({str(path)!r}, kind=KIND):
  print("begun", flush=True)
  time.sleep(60)
"""
  command = [sys.executable, "-c", unfinished]
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
    assert process.stdout.readline() == "begun\n"
    (left,) = os.listdir(tmp_path)
    with atomic_files.new_directory(path, kind=KIND):
      assert left in os.listdir(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait()
  assert sorted(os.listdir(tmp_path)) == [left, "store"]
  with atomic_files.new_directory(path, kind=KIND):
    assert left not in os.listdir(tmp_path)


def test_what_a_link_names_is_replaced_and_the_link_stays(tmp_path):
  path, link = tmp_path / "store", tmp_path / "link"
  path.mkdir()
  (path / "old").touch()
  link.symlink_to(path)
  with atomic_files.new_directory(link, kind=KIND) as directory:
    open(os.path.join(directory, "new"), "w").close()
  assert link.is_symlink() and os.listdir(path) == ["new"]
  assert sorted(os.listdir(tmp_path)) == ["link", "store"]


def test_the_names_of_new_files_are_flushed_after_their_contents(tmp_path, monkeypatch):
  flushed, fsync = [], os.fsync

  def record(handle):
    flushed.append((os.path.realpath(f"/proc/self/fd/{handle}"), os.path.exists(new)))
    fsync(handle)

  monkeypatch.setattr(os, "fsync", record)
  for new, write in (
    (tmp_path / "a" / "file", lambda path: atomic_files.write_text(path, "x")),
    (tmp_path / "b" / "directory", make_directory),
    (tmp_path / "c" / "array", lambda path: array_folder.write_file(path, {}, kind=ARRAYS)),
  ):
    os.makedirs(new.parent, exist_ok=True)
    write(new)
    assert flushed[-1] == (os.fspath(new.parent), True)


def make_directory(path):
  with atomic_files.new_directory(path, kind=KIND):
    pass
