"""A document of a file is known by the folder it was added from and its path below that."""

import json
import os
import pathlib
import shutil

import pytest

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase

MOSS, FERN, OAK = "Moss\nIt grows.", "Fern\nIt has no seeds.", "Oak\nIt is tall."


@pytest.fixture
def put(tmp_path, monkeypatch):
  """Writes files, or removes those whose text is None, where tests run."""
  monkeypatch.chdir(tmp_path)

  def write(**folders):
    for folder, files in folders.items():
      for name, text in files.items():
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink() if text is None else path.write_text(text)

  return write


@pytest.fixture
def base(tmp_path):
  return KnowledgeBase.create(tmp_path / "kb", language="en")


def ids(base):
  return sorted(document.id for document in base.documents())


def text(base, id):
  return base.document(id).text


def lines(*texts, **ids):
  rows = [{"text": text} for text in texts] + [{"id": i, "text": t} for i, t in ids.items()]
  return "\n".join(map(json.dumps, rows))


def test_folders_with_files_of_one_name_have_each_their_documents(put, base):
  same = {"README.md": "# Moss", "rows.jsonl": lines("Moss.", "Fern.")}
  put(a=same, b={**same, "README.md": "# Fern"}, **{"other/b": {**same, "new.txt": OAK}})
  of_a = ["README.md", "rows.jsonl:0", "rows.jsonl:1"]
  for folder in ("a", "b", "other/b"):
    assert base.add(folder).added >= 3
  of_other = [os.path.abspath(f"other/b/{id}") for id in of_a]
  assert ids(base) == sorted([*of_a, *(f"b/{id}" for id in of_a), *of_other, "new.txt"])
  for folder in ("other/b", "b", "a"):
    assert base.update(folder).unchanged >= 3 and len(base) == 10
  put(b={"README.md": "# Oak"})
  assert base.update("b/README.md").updated == 1
  assert [base.document(f"{b}README.md").title for b in ("", "b/")] == ["Moss", "Oak"]
  put(a={"README.md": None}, b={"new.txt": OAK})
  assert base.sync("a").deleted == 1
  changes = base.sync("b")
  assert (changes.added, changes.unchanged, changes.deleted) == (1, 3, 0)
  assert {"b/README.md", "b/new.txt"} < {*ids(base)} and "README.md" not in base
  base.compact()
  assert KnowledgeBase(base.path).sync("b").unchanged == 4


def test_an_id_that_a_record_has_is_that_of_one_document_wherever_it_is_from(put, base):
  put(a={"x.jsonl": lines(one="Moss.", two="Fern.")}, b={"y.jsonl": lines(one="Moss!")})
  base.add([{"id": "one", "text": "Moss."}])
  assert base.add("a").unchanged == 1, "it is skipped, and stays what it was"
  put(a={"x.jsonl": lines(two="Fern.")})
  assert not base.sync("a").deleted
  with pytest.raises(ValueError, match="'one' with another content"):
    base.add("b")
  base.update("b")
  base.update([{"id": "one", "text": "Moss?"}])
  put(b={"y.jsonl": lines(three="Moss!")})
  assert base.sync("b").deleted == 1, "it is of the file that had it"
  put(a={"x.jsonl": lines(four="Oak.")}, b={"y.jsonl": lines(three="Moss!", two="Fern.")})
  assert base.update("b").unchanged == 2 and base.history[0].ids != ("two",)
  assert not base.sync("a").deleted, "its new file has it"
  assert ids(base) == ["four", "three", "two"]


@pytest.mark.parametrize(
  ("given", "gone"),
  [
    (["docs"], ["docs/a.txt", "docs/b.md", "docs/sub/c.txt", "docs/sub/d.jsonl"]),
    (["docs/"], ["docs/a.txt", "docs/b.md", "docs/sub/c.txt", "docs/sub/d.jsonl"]),
    (["docs/sub"], ["docs/sub/c.txt", "docs/sub/d.jsonl"]),
    (["docs/*.txt"], ["docs/a.txt"]),
    (["docs/**/*.txt"], ["docs/a.txt", "docs/sub/c.txt"]),
    (["docs/keep.txt"], []),
    (["docs/keep.txt", "docs/s*b"], ["docs/sub/c.txt", "docs/sub/d.jsonl"]),
    (["link"], ["docs/a.txt", "docs/b.md", "docs/sub/c.txt", "docs/sub/d.jsonl"]),
    (["."], ["docs/a.txt", "docs/b.md", "docs/sub/c.txt", "docs/sub/d.jsonl", "o/a.txt"]),
  ],
)
@pytest.mark.parametrize("first", [["docs"], ["docs/sub", "docs"], ["docs/keep.txt", "docs"]])
def test_only_what_is_missing_from_what_was_given_is_deleted(put, base, first, given, gone):
  files = {"a.txt": MOSS, "b.md": "# Fern", "sub/c.txt": OAK, "keep.txt": MOSS, "sub/k.txt": FERN}
  put(docs={**files, "sub/d.jsonl": lines(d="Elm.")}, o={"a.txt": FERN, "k.txt": MOSS})
  base.add([{"id": "note", "text": "A note."}, {"id": "sub/note.txt", "text": "A note."}])
  for folder in (*first, "o"):
    base.add(folder)
  os.symlink("docs", "link")
  before = {*ids(base)}
  for path in ("docs/a.txt", "docs/b.md", "docs/sub/c.txt", "docs/sub/d.jsonl", "o/a.txt"):
    os.unlink(path)
  assert base.sync(given).deleted == len(gone)
  assert {"note", "sub/note.txt"} < {*ids(base)} < before or not gone
  assert base.sync([{"id": "note", "text": "A note."}]).deleted == 1
  assert "sub/note.txt" not in base and len(base) == len(before) - len(gone) - 1


def test_a_folder_that_moved_is_the_same(put, base, tmp_path):
  put(t={"s/a.txt": MOSS, "b.txt": FERN, "c.txt": OAK}, other={"b.txt": MOSS})
  base.add(["other", "t"])
  there = ids(base)
  assert there == ["b.txt", "c.txt", "s/a.txt", "t/b.txt"]
  shutil.move("t", "moved")
  put(moved={"c.txt": "Elm\nIt is tall."})
  changes = base.update("moved")
  assert (changes.unchanged, changes.updated) == (2, 1) and ids(base) == there
  shutil.move("moved", "again")
  assert base.update("again").unchanged == 3
  base = KnowledgeBase(base.path)
  put(again={"s/a.txt": "Moss\nIt likes water."})
  assert base.update("again/s/a.txt").updated == 1 and text(base, "s/a.txt") == "It likes water."
  os.unlink("again/b.txt")
  assert base.sync("again").deleted == 1 and "b.txt" in base
  os.symlink("again", "current")
  shutil.copytree("again", "newer")
  put(newer={"c.txt": FERN})
  assert base.update("current").unchanged == 2
  os.unlink("current")
  os.symlink("newer", "current")
  assert base.update("again").unchanged == 2
  assert base.update("newer").added == 2, "a copy is another folder while the first is there"


def test_another_folder_does_not_replace_one_that_is_gone(put, base):
  put(x={"README.md": "# Moss", "LICENSE.txt": OAK, "a.txt": MOSS})
  base.add("x")
  shutil.rmtree("x")
  put(y={"README.md": "# Fern", "LICENSE.txt": OAK, "b.txt": MOSS})
  assert base.update("y").added == 3 and len(base) == 6


def test_a_link_that_leads_elsewhere_now_is_the_same_folder(put, base):
  put(**{"1": {"a.txt": MOSS, "b.txt": FERN}, "2": {"a.txt": OAK, "c.txt": FERN}})
  os.symlink("1", "current")
  base.add("current")
  os.unlink("current")
  os.symlink("2", "current")
  changes = base.sync("current")
  assert (changes.added, changes.updated, changes.deleted) == (1, 1, 1)
  assert ids(base) == ["a.txt", "c.txt"]


def test_a_file_alone_does_not_make_its_folder_a_source(put, base):
  put(docs={"a.txt": MOSS}, home={"notes.txt": OAK, "docs/b.txt": FERN})
  assert base.add(["home/notes.txt", "home/docs", "docs/a.txt"]).added == 3
  assert ids(base) == ["a.txt", "b.txt", "notes.txt"]
  assert base.add("home").unchanged == 2
  assert base.add(["docs", "home/docs/b.txt"]).unchanged == 2


def test_a_file_has_one_id_however_it_is_given(put, base):
  put(docs={"a.txt": MOSS, "sub/b.txt": FERN}, more={"a.txt": OAK})
  base.add("docs")
  put(docs={"sub/c.txt": OAK})
  assert base.add("docs/sub/c.txt").added == 1
  assert base.add([pathlib.Path("docs", "sub").absolute(), "docs/a.txt"]).unchanged == 3
  assert ids(base) == ["a.txt", "sub/b.txt", "sub/c.txt"]
  assert base.add("more").added == 1 and "more/a.txt" in base


def test_a_folder_around_one_that_was_given_first_takes_no_ids_of_its_files(put, base):
  put(docs={"sub/b.txt": MOSS, "b.txt": FERN, "other/b.txt": OAK})
  base.add("docs/sub")
  assert base.update("docs/b.txt").added == 1, "it is not the first file, changed"
  changes = base.add("docs")
  assert (changes.added, changes.unchanged) == (1, 2)
  assert ids(base) == ["b.txt", "docs/b.txt", "other/b.txt"]
  assert base.add("docs/other").unchanged == 1


def test_names_that_are_no_utf8_are_known_again(put, base, tmp_path):
  put(docs={"a.txt": MOSS})
  for folder in (b"f\xe4", b"o\xe4"):
    os.mkdir(os.fsencode(tmp_path) + b"/" + folder)
    with open(os.fsencode(tmp_path) + b"/" + folder + b"/f\xe4.txt", "w") as file:
      file.write(FERN)
  folders = [os.fsdecode(os.fsencode(tmp_path) + b"/" + name) for name in (b"f\xe4", b"o\xe4")]
  base.add(["docs", *folders])
  assert ids(base) == ["a.txt", "f\\xe4.txt", "o\\xe4/f\\xe4.txt"]
  base = KnowledgeBase(base.path)
  assert base.sync(folders).unchanged == 2
