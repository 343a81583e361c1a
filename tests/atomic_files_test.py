import os
import stat

import pytest

from realm_jax import atomic_files


def test_a_file_is_replaced_whole(tmp_path):
  path = tmp_path / "notes.txt"
  atomic_files.write_text(path, "old, and longer")
  atomic_files.write_text(path, "neu: é")
  assert path.read_bytes() == "neu: é".encode()
  assert stat.S_IMODE(path.stat().st_mode) == 0o644
  assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path):
  (tmp_path / "taken").mkdir()
  with pytest.raises(OSError):
    atomic_files.write_text(tmp_path / "taken", "x")
  assert os.listdir(tmp_path) == ["taken"]


def test_a_directory_appears_when_it_is_finished(tmp_path):
  path = tmp_path / "runs" / "store"
  with atomic_files.new_directory(path) as directory:
    open(os.path.join(directory, "a"), "w").close()
    assert not path.exists()
  assert os.listdir(path) == ["a"]
  assert os.listdir(path.parent) == ["store"]
  assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_a_directory_is_replaced_as_a_whole(tmp_path):
  path = tmp_path / "store"
  for name in ("old", "new"):
    with atomic_files.new_directory(path) as directory:
      open(os.path.join(directory, name), "w").close()
  assert os.listdir(path) == ["new"]
  assert os.listdir(tmp_path) == ["store"]


def test_a_failed_directory_leaves_the_old_one_and_nothing_else(tmp_path):
  path = tmp_path / "store"
  with atomic_files.new_directory(path) as directory:
    open(os.path.join(directory, "old"), "w").close()
  with pytest.raises(KeyboardInterrupt), atomic_files.new_directory(path) as directory:
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
    if os.path.abspath(target) == str(path) and os.path.exists(os.path.join(source, "new")):
      raise OSError("no space left")
    rename(source, target)

  monkeypatch.setattr(os, "rename", fail_for_the_new)
  with pytest.raises(OSError, match="no space"), atomic_files.new_directory(path) as directory:
    open(os.path.join(directory, "new"), "w").close()
  assert os.listdir(path) == ["old"]
  assert os.listdir(tmp_path) == ["store"]
