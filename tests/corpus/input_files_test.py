"""Tests of which files belong to a corpus, what they are called and in which format they are."""

import gzip
import os

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


@pytest.mark.parametrize(
  ("input", "names"),
  [
    ("notes [2024]", ["a.txt", "b.txt"]),
    ("notes [2024]/", ["a.txt", "b.txt"]),
    ("notes [2024]/a.txt", ["a.txt"]),
    ("notes [2024]/b*", ["b.txt"]),
    ("report[1].txt", ["report[1].txt"]),
    ("what?.txt", ["what?.txt"]),
    ("a*b", ["a.txt"]),
    ("a*b/?.txt", ["a.txt"]),
    ("a[XY]b", ["aXb/a.txt"]),
  ],
)
def test_what_exists_is_taken_literally(tmp_path, monkeypatch, input, names):
  places = ("notes [2024]/a.txt", "notes [2024]/b.txt", "report[1].txt", "report1.txt")
  for name in (*places, "what?.txt", "whats.txt", "a*b/a.txt", "aXb/a.txt"):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("Title\nText.")
  monkeypatch.chdir(tmp_path)
  for start in ("", f"{tmp_path}/", f"file://{tmp_path}/"):
    (files,) = find_files([start + input.replace("?", "%3F" if "file" in start else "?")])
    assert [file.name for file in files] == names
  folder = "aXb" if "XY" in input else input.partition("/")[0]
  assert all(f"{folder}" in file.path for file in files)


def test_addresses_on_the_web_are_refused(tmp_path):
  for address in ("http://127.0.0.1/x.txt", "HTTPS://127.0.0.1/", "ftp://127.0.0.1/x.txt"):
    with pytest.raises(ValueError, match="127.0.0.1/.* is not downloaded; save it to a file"):
      find_files([str(tmp_path), address])


def test_names_that_are_not_utf8_are_read_and_shown_with_escapes(tmp_path, capsys):
  os.mkdir(os.fsencode(tmp_path) + b"/caf\xe9")
  for name, content in {
    b"caf\xe9.txt": "A\nOne.",
    b"caf\xe9/b.jsonl": '{"text": "Two."}\n5',
  }.items():
    with open(os.fsencode(tmp_path) + b"/" + name, "w") as file:
      file.write(content)
  for name in (b"caf\xe9.pdf", b"\xff.txt"):
    os.symlink("absent" if name[0] == 255 else "caf", os.fsencode(tmp_path) + b"/" + name)
  with open(os.fsencode(tmp_path) + b"/sc\xe4n.pdf", "w") as file:
    file.write("no text")
  bad = BadRecords()
  (files,) = find_files([str(tmp_path)])
  found = {document.id: document.text for document in read_documents(files, bad=bad)}
  assert found == {"caf\\xe9.txt": "One.", "caf\\xe9/b.jsonl:0": "Two."}
  said = capsys.readouterr().out + "".join(bad.report())
  assert "caf\\xe9/b.jsonl:2" in said and "sc\\xe4n.pdf" in said and "\\xff.txt" in said
  said.encode()


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
