"""What has changed below folders is seen, and nothing that links lead to."""

import contextlib
import os

import pytest

from realm_jax.foundations import watching

pytest.importorskip("watchfiles")


@pytest.fixture
def folder(tmp_path):
  (tmp_path / "docs" / "sub").mkdir(parents=True)
  return tmp_path / "docs"


@contextlib.contextmanager
def watched(folder):
  """Yields what returns whether a change is seen before two looks without one."""
  seen = watching.changes([str(folder)], outside=str(folder.parent / "kb"))
  next(seen)
  with contextlib.closing(seen):
    yield lambda: next(seen) or next(seen)


def test_links_are_not_followed(folder, tmp_path):
  (tmp_path / "out").mkdir()
  (folder / "link").symlink_to(tmp_path / "out")
  with watched(folder) as is_changed:
    (tmp_path / "out" / "a.txt").write_text("Moss.")
    assert not is_changed()
    (folder / "sub" / "a.txt").write_text("Moss.")
    assert is_changed()


def test_new_folders_and_those_that_replace_others_are_followed(folder):
  with watched(folder) as is_changed:
    (folder / "sub").rename(folder / "away")
    (folder / "sub" / "below").mkdir(parents=True)
    while is_changed():  # until all is seen
      pass
    for name in ("away", "sub/below"):
      (folder / name / "a.txt").write_text("Moss.")
      assert is_changed(), name


def test_a_folder_that_replaces_one_of_the_same_number_is_followed(folder):
  with watched(folder) as is_changed:
    before = (folder / "sub").stat().st_ino
    (folder / "sub").rmdir()
    (folder / "sub").mkdir()
    if (folder / "sub").stat().st_ino != before:
      pytest.skip("this disk gives each folder a new number")
    while is_changed():  # until all is seen
      pass
    (folder / "sub" / "a.txt").write_text("Moss.")
    assert is_changed()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser reads all")
def test_what_cannot_be_read_does_not_end_it(folder):
  (folder / "sub").chmod(0)
  with watched(folder) as is_changed:
    (folder / "a.txt").write_text("Moss.")
    assert is_changed()
    (folder / "sub").chmod(0o755)
    assert is_changed()
    (folder / "sub" / "a.txt").write_text("Moss.")
    assert is_changed()
