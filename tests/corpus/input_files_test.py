"""Tests of which files belong to a corpus, what they are called and in which format they are."""

import gzip

import pytest

from realm_jax.corpus.documents import BadRecords
from realm_jax.corpus.input_files import find_files, input_files
from realm_jax.corpus.reading import read_documents


def test_a_folder_stands_for_all_files_below_it(tmp_path):
  for name in ("b/x", "b/a/[1]", "a", "c", "d[0]/x"):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("")
  found = [str(tmp_path / name) for name in ("b/a/[1]", "b/x")]
  assert input_files(tmp_path / "b") == found
  assert input_files(tmp_path / "b*") == found
  assert input_files(tmp_path / "d*") == [str(tmp_path / "d[0]" / "x")]
  assert input_files(tmp_path / "b" / "**") == found


def test_links_to_a_folder_above_are_not_followed(tmp_path):
  (tmp_path / "a" / "b").mkdir(parents=True)
  (tmp_path / "a" / "b" / "x").write_text("")
  (tmp_path / "a" / ".hidden").write_text("")
  for name in ("first", "second"):
    (tmp_path / "a" / name).symlink_to("b")
  assert len(input_files(tmp_path)) == 3
  for name in ("up", "here"):
    (tmp_path / "a" / "b" / name).symlink_to("..")
  assert input_files(tmp_path / "a") == [
    str(tmp_path / "a" / name / "x") for name in ("b", "first", "second")
  ]


def test_a_broken_link_in_a_folder_is_skipped_and_named(tmp_path, capsys):
  (tmp_path / "x.txt").write_text("")
  (tmp_path / "gone.txt").symlink_to("absent.txt")
  assert input_files(tmp_path) == [str(tmp_path / "x.txt")]
  assert capsys.readouterr().out == f"skipped broken links (1): {tmp_path}/gone.txt\n"


@pytest.mark.parametrize(
  ("inputs", "names"),
  [
    (["corpus"], ["p1/notes.txt", "p2/notes.txt", "top.jsonl"]),
    (["corpus/*/notes.txt"], ["p1/notes.txt", "p2/notes.txt"]),
    (["corpus/p*"], ["p1/notes.txt", "p2/notes.txt"]),
    (["corpus/p1/no*"], ["notes.txt"]),
    (["corpus/top.jsonl"], ["top.jsonl"]),
    (["corpus/p2", "corpus/p1/notes.txt"], ["p2/notes.txt", "p1/notes.txt"]),
  ],
)
def test_files_are_named_by_their_path_below_the_inputs(tmp_path, monkeypatch, inputs, names):
  for name in ("p1/notes.txt", "p2/notes.txt", "top.jsonl"):
    (tmp_path / "corpus" / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "corpus" / name).write_text('{"text": "a"}\nText.')
  monkeypatch.chdir(tmp_path)
  for start in ("", f"{tmp_path}/"):
    files = [file for found in find_files([start + input for input in inputs]) for file in found]
    assert [file.name for file in files] == names
    ids = [document.id for document in read_documents(files, bad=BadRecords())]
    assert ids == [name + ":0" * name.endswith(".jsonl") for name in names]


@pytest.fixture
def folder(tmp_path):
  for name in ("UPPER.TXT", "b.md", "c.xls", *(f"d{i}.pdf" for i in range(6))):
    (tmp_path / name).write_text("Title\nText.")
  (tmp_path / "a.TXT.GZ").write_bytes(gzip.compress(b"Title\nText."))
  return tmp_path


def test_files_of_unknown_format_in_a_directory_are_skipped_and_named(folder, capsys):
  (files,) = find_files([str(folder)])
  assert [file.name for file in files] == ["UPPER.TXT", "a.TXT.GZ", "b.md"]
  assert [document.text for document in read_documents(files, bad=BadRecords())] == ["Text."] * 3
  (line,) = capsys.readouterr().out.splitlines()
  named = ", ".join(str(folder / name) for name in ("c.xls", *(f"d{i}.pdf" for i in range(4))))
  assert line == f"skipped files of unknown format (7): {named} and 2 more"


@pytest.mark.parametrize("wanted", ["c.xls", "*c*", "d*"])
def test_files_of_unknown_format_that_were_asked_for_are_refused(folder, wanted):
  with pytest.raises(ValueError, match=r"cannot infer .*/[cd].*; end their names in "):
    find_files([str(folder / "b.md"), str(folder / wanted)])
  assert find_files([str(folder / wanted)], format="text")[0][0].format == "text"
