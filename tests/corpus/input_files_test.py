"""Tests of which files belong to a corpus, what they are called and in which format they are."""

import gzip
import os
import time

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


def below(root, pattern=""):
  bad = BadRecords()
  found = input_files(os.path.join(root, pattern) if pattern else root, bad=bad)
  return [os.path.relpath(path, root) for path in found], " ".join(bad.report())


@pytest.mark.parametrize("pattern", ["", "**", "**/x", "*"])
def test_a_file_is_found_once_whatever_links_lead_to_it(tmp_path, pattern):
  for number in range(9):
    (tmp_path / f"d{number}").mkdir()
    for other in {*range(9)} - {number}:
      (tmp_path / f"d{number}" / f"l{other}").symlink_to(f"../d{other}")
    (tmp_path / f"d{number}" / "up").symlink_to("..")
  (tmp_path / "d3" / "x").write_text("")
  (tmp_path / "d4" / "y").symlink_to("../d3/x")
  assert below(tmp_path, pattern) == (["d3/x"], "")


def test_links_to_hidden_files_of_a_folder_are_followed_and_those_out_of_it_are_named(tmp_path):
  texts, elsewhere = tmp_path / "texts", tmp_path / "elsewhere"
  (texts / "..data").mkdir(parents=True)
  elsewhere.mkdir()
  for path in (texts / "..data" / "a.txt", elsewhere / "b.txt", texts / "c.txt"):
    path.write_text("")
  (texts / "a.txt").symlink_to("..data/a.txt")
  (texts / "gone.txt").symlink_to("absent.txt")
  (texts / "b.txt").symlink_to(elsewhere / "b.txt")
  (texts / "more").symlink_to(elsewhere)
  (texts / "zero.txt").symlink_to("/dev/zero")
  os.mkfifo(texts / "pipe.txt")
  (texts / "~$c.txt").write_text("as Office writes beside a document that is open")
  for pattern in ("", "*", "**"):
    found, said = below(texts, pattern)
    assert found == ["a.txt", "c.txt"]
    assert all(reason in said for reason in ("a link out of the folder", "a pipe", "a broken link"))
    for name in ("b.txt", "more", "zero.txt", "pipe.txt", "gone.txt"):
      assert f"{texts}/{name}" in said
  (tmp_path / "link").symlink_to(texts)
  assert below(tmp_path / "link")[0] == ["a.txt", "c.txt"], "it was named itself"
  assert input_files(texts / "b.txt") == [str(texts / "b.txt")]


def test_a_pipe_or_a_device_that_was_named_is_refused(tmp_path):
  os.mkfifo(tmp_path / "pipe.txt")
  (tmp_path / "zero.txt").symlink_to("/dev/zero")
  for name in ("pipe.txt", "zero.txt"):
    with pytest.raises(ValueError, match=rf"{name} is a pipe, a socket or a device; save"):
      input_files(tmp_path / name)


def test_folders_may_be_nested_as_deep_as_paths_reach(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "b.txt").write_text("")
  for _ in range(1_100):
    os.mkdir("d")
    os.chdir("d")
  with open("a.txt", "w"):
    pass
  began = time.process_time()
  numbers = [len(input_files(tmp_path / pattern)) for pattern in (".", "**/*.txt")]
  spent = time.process_time() - began
  os.unlink("a.txt")
  for _ in range(1_100):  # which pytest cannot remove
    os.chdir("..")
    os.rmdir("d")
  assert numbers == [2, 2] and spent < 5


def test_a_broken_link_in_a_folder_is_skipped_and_named(tmp_path, capsys):
  (tmp_path / "x.txt").write_text("")
  (tmp_path / "gone.txt").symlink_to("absent.txt")
  assert input_files(tmp_path) == [str(tmp_path / "x.txt")]
  assert capsys.readouterr().out == f"skipped files: {tmp_path}/gone.txt (a broken link)\n"


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
  for name in ("UPPER.TXT", "b.md", "c.xls", *(f"d{i}.png" for i in range(6))):
    (tmp_path / name).write_text("Title\nText.")
  (tmp_path / "a.TXT.GZ").write_bytes(gzip.compress(b"Title\nText."))
  return tmp_path


def test_files_of_unknown_format_in_a_directory_are_skipped_and_named(folder, capsys):
  (files,) = find_files([str(folder)])
  assert [file.name for file in files] == ["UPPER.TXT", "a.TXT.GZ", "b.md"]
  assert [document.text for document in read_documents(files, bad=BadRecords())] == ["Text."] * 3
  (line,) = capsys.readouterr().out.splitlines()
  named = ", ".join(str(folder / f"d{i}.png") for i in range(6))
  assert line == f"skipped files: {folder}/c.xls (of unknown format), {named}"


@pytest.mark.parametrize("wanted", ["c.xls", "*c*", "d*"])
def test_files_of_unknown_format_that_were_asked_for_are_refused(folder, wanted):
  with pytest.raises(ValueError, match=r"cannot infer .*/[cd].*; end their names in "):
    find_files([str(folder / "b.md"), str(folder / wanted)])
  assert find_files([str(folder / wanted)], format="text")[0][0].format == "text"
