import os
import shutil

import pytest

from realm_jax.foundations import plain_files


def pipe(path):
  os.mkfifo(path)


def link(path):
  (path.parent.parent / "mine").write_text("mine")
  path.symlink_to("../mine")


def dangling(path):
  path.symlink_to("../missing")


@pytest.mark.parametrize("make", [pipe, link, dangling])
@pytest.mark.parametrize("mode", ["rb", "r", "ab", "r+b", "w"])
def test_what_is_no_file_is_neither_opened_nor_waited_for(tmp_path, make, mode):
  folder = tmp_path / "folder"
  folder.mkdir()
  make(folder / "file")
  with pytest.raises(ValueError, match=r"folder/file is .*, which is not opened; put a file"):
    plain_files.open_plain(folder / "file", mode)
  with pytest.raises(ValueError, match=r"folder/file is "):
    plain_files.check_plain(tmp_path)
  assert {path.name for path in tmp_path.iterdir()} <= {"folder", "mine"}
  assert make is not link or (tmp_path / "mine").read_text() == "mine"


def test_a_folder_is_plain_although_it_is_linked_to(tmp_path):
  (tmp_path / "folder" / "below").mkdir(parents=True)
  (tmp_path / "folder" / "below" / "file").touch()
  (tmp_path / "link").symlink_to("folder")
  plain_files.check_plain(tmp_path / "link")
  (tmp_path / "folder" / "other").symlink_to("below")
  with pytest.raises(ValueError, match="other is a link"):
    plain_files.check_plain(tmp_path / "link")
  shutil.rmtree(tmp_path / "folder")
  with pytest.raises(FileNotFoundError):
    plain_files.open_plain(tmp_path / "folder" / "file")
