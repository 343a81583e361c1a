"""A synced knowledge base is that of the files as they are now, and reads only what has changed."""

import json
import os
import random

import numpy as np
import pytest

from realm_jax.corpus import reading
from realm_jax.corpus.formats import document_files
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.store import file_states


@pytest.fixture
def folder(tmp_path):
  folder = tmp_path / "texts"
  folder.mkdir()
  return folder


@pytest.fixture
def read(monkeypatch):
  """The names of the files that are read."""
  names = []

  def open_file(path, of=reading.open_file):
    names.append(os.path.basename(path))
    return of(path)

  monkeypatch.setattr(reading, "open_file", open_file)
  return names


@pytest.fixture
def long_ago(monkeypatch):
  """Lets what was written just now count as written long ago, so that digests are not compared."""
  monkeypatch.setattr(file_states, "_TICK", -(10**12))


def contents(base):
  return {d.id: (d.title, d.text, d.fields) for d in base.documents(count=10_000)}


def lines(**records):
  return "".join(json.dumps({"id": id, "text": text}) + "\n" for id, text in records.items())


class Encoder:
  """Embeds by counting letters, and remembers what it has embedded."""

  def __init__(self):
    self.texts = []

  def encode(self, texts):
    self.texts += texts
    return np.array([[1 + text.count(c) for c in "aeioust"] for text in texts], np.float32)


def changed(draw, folder, base):
  """Changes something in a folder, or of the knowledge base behind its back."""
  files = sorted(path for path in folder.rglob("*") if path.is_file())
  name = draw.choice(["a.txt", "b.md", "sub/c.txt", "sub/deep/d.jsonl", "e.jsonl", "f.txt", "g.md"])
  text = f"{draw.choice(['Moss', 'Fern', 'Oak'])} {draw.randrange(100, 1000)}"
  match draw.choice(["write"] * 4 + ["remove", "rename", "touch", "same size", "delete", "update"]):
    case "write":
      path = folder / name
      path.parent.mkdir(parents=True, exist_ok=True)
      records = {f"{draw.random()}": f"{text} {number}." for number in range(3)}
      path.write_text(lines(**records) if name.endswith("jsonl") else f"{text}\n\nIt grows.")
    case "remove" if len(files) > 1:
      draw.choice(files).unlink()
    case "rename" if files:
      path = draw.choice(files)
      path.rename(folder / f"{draw.randrange(99)}{path.suffix}")  # records keep their ids
    case "touch" if files:
      os.utime(draw.choice(files), ns=(1, draw.randrange(10**18)))
    case "same size" if files:
      path = draw.choice(files)
      before, content = path.stat(), path.read_text()
      path.write_text(content.replace("grows", "dries").replace("Moss", "Fern"))
      os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    case "delete" if len(base):
      base.delete(draw.choice(base.documents()).id)
    case "update" if len(base):
      base.update([{"id": draw.choice(base.documents()).id, "text": "Something else."}])


@pytest.mark.parametrize("seed", range(4))
def test_any_history_of_files_ends_in_what_they_are(folder, tmp_path, seed, read, request):
  if seed % 2:
    request.getfixturevalue("long_ago")
  draw, encoder = random.Random(seed), Encoder()
  base = KnowledgeBase.create(tmp_path / "kb", language="en", encoder=encoder)
  (folder / "first.txt").write_text("First\n\nIt grows.")
  for step in range(12):
    for _ in range(draw.randint(1, 4)):
      changed(draw, folder, base)
    if draw.random() < 0.2:
      base.compact(purge=draw.random() < 0.5)
    base.sync(folder)
    fresh = KnowledgeBase.create(tmp_path / f"fresh{step}", folder, language="en", encoder=encoder)
    assert contents(base) == contents(fresh)
    question = "moss that grows 1 2 3"
    assert [(h.id, h.text) for h in base.search(question, k=50)] == [
      (h.id, h.text) for h in fresh.search(question, k=50)
    ]
    read.clear()
    encoder.texts.clear()
    changes = base.sync(folder)
    assert (read, encoder.texts, changes.unchanged) == ([], [], len(fresh))


def test_what_was_said_about_a_file_goes_with_it_when_it_is_renamed(folder, tmp_path):
  for name in ("a", "b", "c"):
    (folder / f"{name}.txt").write_text(f"{name}\n\nMoss {name} grows in the shade.")
  base = KnowledgeBase.create(tmp_path / "kb", folder, language="en")
  base.feedback("what grows", useful=["a.txt", "c.txt"], not_useful="b.txt")
  (folder / "sub").mkdir()
  (folder / "a.txt").rename(folder / "sub" / "z.txt")
  (folder / "b.txt").write_text("b\n\nNo more moss.")
  (folder / "c.txt").rename(folder / "d.txt")
  (folder / "d.txt").write_text("d\n\nMoss d grows in the shade.")
  assert base.sync(folder).deleted == 2
  (past,) = KnowledgeBase(base.path).past_questions()
  assert [one.id for one in past.useful] == ["sub/z.txt"]
  assert [one.id for one in past.not_useful] == ["b.txt"]
  assert base.search("what grows")[0].id == "sub/z.txt"
  (folder / "d.txt").rename(tmp_path / "d.txt")
  base.delete("sub/z.txt")
  base.sync(folder)
  assert not [*base.past_questions()[0].useful], "it was deleted before it came back"


def test_files_of_one_text_that_become_one_are_judged_once(folder, tmp_path):
  for name in ("a", "b"):
    (folder / f"{name}.txt").write_text("Moss grows in the shade.")
  base = KnowledgeBase.create(tmp_path / "kb", folder, language="en")
  base.feedback("what grows", useful=["a.txt", "b.txt"])
  (folder / "a.txt").rename(folder / "c.txt")
  (folder / "b.txt").unlink()
  base.sync(folder)
  (past,) = base.past_questions()
  assert [one.id for one in past.useful] == ["c.txt"]


def test_what_create_add_and_update_have_read_is_not_read_again(folder, tmp_path, read):
  for name in "abc":
    (folder / f"{name}.txt").write_text(f"{name}\n\nIt grows.")
  base = KnowledgeBase.create(tmp_path / "kb", folder / "a.txt", language="en")
  base.add(folder / "b.txt")
  base.update(folder / "c.txt")
  read.clear()
  assert base.sync(folder).unchanged == 3 and read == []
  assert base.update(folder).unchanged == 3 and len(read) == 3, "which reads all of them again"
  os.unlink(tmp_path / "kb" / file_states.FILE)
  assert base.sync(folder).unchanged == 3 and len(read) == 6
  (tmp_path / "kb" / file_states.FILE).write_text('{"version": 1}')
  assert KnowledgeBase(base.path).sync(folder).unchanged == 3 and len(read) == 9
  for change in (lambda: base.sync(folder), lambda: base.compact(purge=True)):
    (tmp_path / "kb" / f".{file_states.FILE}.1234").touch()  # of a killed process
    change()
    assert not [*(tmp_path / "kb").glob(f".{file_states.FILE}*")]
  assert not (tmp_path / "kb" / file_states.FILE).exists(), "it has names of what is gone"


@pytest.mark.parametrize("change", ["add", "update"])
def test_a_record_that_is_gone_when_its_file_is_added_again_is_deleted_by_the_next_sync(
  folder, tmp_path, change
):
  (folder / "notes.jsonl").write_text(lines(a="Moss.", b="Oak."))
  base = KnowledgeBase.create(tmp_path / "kb", folder, language="en")
  (folder / "notes.jsonl").write_text(lines(a="Moss."))
  getattr(base, change)(folder)
  assert len(base) == 2
  assert base.sync(folder).deleted == 1
  assert [*contents(base)] == ["a"]


def test_what_is_bad_in_a_file_that_is_read_again_counts_once(folder, tmp_path):
  base = KnowledgeBase.create(tmp_path / "kb")
  (folder / "a.jsonl").write_text(lines(one="One.") + "{broken\n")
  for change in (base.sync, base.update, base.add):
    (folder / f"{change.__name__}.txt").write_text("More.")
    change(folder)
  (line,) = base.sync(folder).skipped
  assert line.count("a.jsonl:2") == 1


def test_a_file_that_changes_while_it_is_read_is_read_again(
  folder, tmp_path, monkeypatch, long_ago
):
  path = folder / "a.txt"
  path.write_text("Moss\n\nIt grows.")

  def open_file(name, of=reading.open_file):
    file = of(name)
    content = file.read()
    file.seek(0)
    path.write_bytes(content.replace(b"grows", b"dries"))
    return file

  with monkeypatch.context() as patch:
    patch.setattr(reading, "open_file", open_file)
    base = KnowledgeBase.create(tmp_path / "kb", folder, language="en")
  base.sync(folder)
  assert base.document("a.txt").text == "It dries."


def test_a_document_that_stays_that_of_another_file_becomes_that_of_the_one_that_is_synced(
  folder, tmp_path
):
  for name in "ab":
    (folder / name).mkdir()
    (folder / name / "x.jsonl").write_text(lines(moss="It grows."))
  base = KnowledgeBase.create(tmp_path / "kb", folder / "a", language="en")
  base.add(folder / "b")
  base.sync(folder / "b")
  (folder / "a" / "x.jsonl").write_text(lines(fern="It grows."))
  assert base.sync(folder / "a").deleted == 0 and "moss" in base


def test_two_files_with_one_id_are_refused_whichever_is_read(folder, tmp_path):
  (folder / "a.jsonl").write_text(lines(moss="It grows."))
  base = KnowledgeBase.create(tmp_path / "kb", folder, language="en")
  (folder / "b.jsonl").write_text(lines(moss="It dries."))
  with pytest.raises(ValueError, match="'moss', of a.jsonl and b.jsonl; give"):
    base.sync(folder)
  (folder / "a.jsonl").write_text(lines(oak="It grows."))
  base.sync(folder)
  assert {id: text for id, (_, text, _) in contents(base).items()} == {
    "moss": "It dries.",
    "oak": "It grows.",
  }


def test_what_files_led_to_is_counted_for_files_alone(folder, tmp_path, monkeypatch):
  (folder / "a.jsonl").write_text(lines(moss="It grows."))
  base = KnowledgeBase.create(tmp_path / "kb", folder, language="en")
  monkeypatch.setattr(file_states, "_documents", lambda snapshot: pytest.fail("counted"))
  assert base.add([{"id": "elm", "text": "Elms live."}]).added == 1
  with pytest.raises(pytest.fail.Exception, match="counted"):
    base.sync(folder)


def test_a_record_moves_from_a_file_with_a_broken_line_to_another(folder, tmp_path):
  (folder / "a.jsonl").write_text(lines(moss="It grows.", oak="It is tall."))
  base = KnowledgeBase.create(tmp_path / "kb", folder, language="en")
  (folder / "a.jsonl").write_text(lines(oak="It is tall.") + '{"id": "mo')
  assert base.sync(folder).kept == 1
  (folder / "b.jsonl").write_text(lines(moss="It dries."))
  changes = base.sync(folder)
  assert (changes.updated, changes.unchanged) == (1, 1)
  assert base.document("moss").text == "It dries."
  (folder / "b.jsonl").write_text(lines(oak="It is old."))
  with pytest.raises(ValueError, match="two documents have the id 'oak'"):
    base.sync(folder)


def test_what_cannot_be_read_stays_and_is_named_and_the_rest_is_synced(
  folder, tmp_path, monkeypatch, read, long_ago
):
  (folder / "closed").mkdir()
  files = {"broken.pdf": "", "closed/c.txt": "C\n\nIt grows.", "gone.txt": "Gone\n\nIt grows."}
  files |= {"rows.jsonl": lines(one="One.", two="Two."), "locked.txt": "Locked\n\nIt grows."}
  for name, text in files.items():
    (folder / name).write_text(text)
  (folder / "broken.pdf").write_text("{\\rtf1 It grows.}")
  base = KnowledgeBase.create(tmp_path / "kb", folder, language="en")
  assert len(base) == 6
  (folder / "broken.pdf").write_text("no such file")
  (folder / "rows.jsonl").write_text(lines(two="Two!", three="Three.") + '{"id": "one"')
  (folder / "gone.txt").unlink()
  (folder / "locked.txt").write_text("Locked\n\nIt dries.")

  def refuse(path, *rest, of, named):
    if os.fspath(path).endswith(named):
      raise PermissionError(13, "Permission denied", path)
    return of(path, *rest)

  def open_file(path, of=reading.open_file):
    return refuse(path, of=of, named="locked.txt")

  def scandir(path, of=os.scandir):
    return refuse(path, of=of, named="closed")

  monkeypatch.setattr(reading, "open_file", open_file)
  monkeypatch.setattr(os, "scandir", scandir)
  for is_first in (True, False):
    read.clear()
    changes = base.sync(folder)
    assert {*contents(base)} == {
      *("broken.pdf", "closed/c.txt", "locked.txt"),
      *("one", "two", "three"),
    }
    assert base.document("two").text == "Two!" and base.document("one").text == "One."
    assert (changes.deleted, changes.kept) == ((1, 4) if is_first else (0, 2))
    said = "\n".join(changes.skipped)
    assert all(name in said for name in ("broken.pdf", "rows.jsonl:3", "closed", "locked.txt"))
    assert read == ["broken.pdf", "rows.jsonl"] if is_first else not read
  monkeypatch.undo()
  (folder / "broken.pdf").unlink()
  (folder / "closed" / "c.txt").unlink()
  (folder / "rows.jsonl").write_text(lines(two="Two!"))
  changes = base.sync(folder)
  assert {*contents(base)} == {"locked.txt", "two"}
  assert (changes.deleted, changes.kept, changes.skipped) == (4, 0, ())


def test_what_was_not_read_in_time_is_read_again_and_what_ends_its_reader_is_not(
  folder, tmp_path, monkeypatch, read
):
  errors = {"slow.rtf": TimeoutError("too slow"), "deadly.rtf": ChildProcessError("it ends it")}

  def reader(request, of=document_files._reader()):
    if error := errors.get(request.split()[-1].decode()):
      raise error
    return of(request)

  monkeypatch.setattr(document_files, "_reader", lambda: reader)
  for name in (*errors, "a.rtf"):
    (folder / name).write_text("{\\rtf1 It grows.} " + name)
  base = KnowledgeBase.create(tmp_path / "kb", folder, language="en")
  for _ in range(2):
    read.clear()
    said = "\n".join(base.sync(folder).skipped)
    assert "slow.rtf (too slow)" in said and "deadly.rtf (it ends it)" in said
    assert read == ["slow.rtf"]
  del errors["slow.rtf"]
  assert base.sync(folder).added == 1 and "slow.rtf" in base


def test_nothing_deletes_nothing(folder, tmp_path):
  """As the list of a pattern without a match, which is no list of records."""
  (folder / "a.txt").write_text("Moss\n\nIt grows.")
  base = KnowledgeBase.create(tmp_path / "kb", folder, language="en")
  (folder / "a.txt").unlink()
  for path in (folder, tmp_path / "elsewhere"):
    with pytest.raises(FileNotFoundError, match="no file matches"):
      base.sync(path)
  for nothing in ([], iter(())):
    with pytest.raises(ValueError, match="nothing is given to sync with"):
      base.sync(nothing)
  assert len(base) == 1
