"""`realm kb sync --watch` follows folders, whatever ends it."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading

import pytest

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase

watchfiles = pytest.importorskip("watchfiles")

from realm_jax.foundations import watching  # noqa: E402
from realm_jax.knowledge_base import folder  # noqa: E402
from realm_jax.knowledge_base import following as following_folders  # noqa: E402

SECONDS = 40  # at most, until a change is seen


@contextlib.contextmanager
def following(where, *, ended_by):
  """Yields what waits for a line of a process that follows `docs`."""
  # Ignored where tests run in the background, and then by the process, too.
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  process = subprocess.Popen(
    [sys.executable, "-m", "realm_jax.main", "kb", "sync", "kb", "docs", "--watch"],
    cwd=where,
    env={**os.environ, "PYTHONPATH": os.getcwd()},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )
  signal.signal(signal.SIGINT, before)
  lines = queue.Queue()
  threading.Thread(target=lambda: [*map(lines.put, process.stdout)], daemon=True).start()

  def wait_for(part):
    while part not in (line := lines.get(timeout=SECONDS)):
      print(line)  # which a failure shows
    return line

  try:
    wait_for("interrupt to end")
    yield wait_for
    process.send_signal(ended_by)
    assert process.wait(SECONDS) == {signal.SIGINT: 130}.get(ended_by, -ended_by)
  finally:
    process.kill()
    process.wait()


@pytest.fixture
def docs(tmp_path):
  docs = tmp_path / "docs"
  docs.mkdir()
  (docs / "a.txt").write_text("Moss\n\nIt grows.")
  KnowledgeBase.create(tmp_path / "kb", language="en")
  return docs


def ids(docs):
  return sorted(document.id for document in KnowledgeBase(docs.parent / "kb").documents())


def test_each_change_is_a_line_and_is_kept_whatever_ends_it(docs):
  with following(docs.parent, ended_by=signal.SIGKILL) as wait_for:
    assert ids(docs) == ["a.txt"]
    (docs / "b.txt").write_text("Fern\n\nIt grows.")
    assert wait_for("1 added").rstrip().endswith(": b.txt")
    assert ids(docs) == ["a.txt", "b.txt"]
  (docs / "a.txt").unlink()
  with following(docs.parent, ended_by=signal.SIGTERM) as wait_for:
    assert ids(docs) == ["b.txt"]
    with folder.lock(str(docs.parent / "kb")):
      (docs / "rows.jsonl").write_text('{"id": "one", "text": "One."}\n{"id"')
      wait_for("waiting: ")  # for another writer
    wait_for("rows.jsonl:2")
    (docs.parent / "new.txt").write_text("Fern\n\nIt dries.")
    (docs.parent / "new.txt").replace(docs / "b.txt")
    assert "b.txt" in wait_for("1 updated")
  with following(docs.parent, ended_by=signal.SIGINT) as wait_for:
    docs.rename(docs.parent / "away")
    wait_for("no file matches 'docs'")
    (docs.parent / "away").rename(docs)
    (docs / "sub").mkdir()
    (docs / "sub" / "c.md").write_text("# Oak\n\nIt is tall.")
    wait_for("sub/c.md")
  assert ids(docs) == ["b.txt", "one", "sub/c.md"]


def test_what_a_full_disk_refused_is_tried_again(docs, monkeypatch, capsys):
  base = KnowledgeBase(docs.parent / "kb")
  sync, full = base.sync, iter([True, True])
  base.sync(docs)

  def sync_on_a_disk(texts):
    if next(full, False):
      raise OSError(28, "No space left on device")
    return sync(texts)

  def changes(paths, outside):
    (docs / "b.txt").write_text("Fern\n\nIt grows.")
    monkeypatch.setattr(base, "sync", sync_on_a_disk)
    yield from (True, False, False, False)

  monkeypatch.setattr(following_folders, "_AGAIN", -1.0)
  monkeypatch.setattr(watching, "changes", changes)
  following_folders.follow(base, [str(docs)])
  lines = capsys.readouterr().out.splitlines()[3:]
  assert [line.partition(" ")[2] for line in lines] == [
    "[Errno 28] No space left on device",
    "documents: 1 added: b.txt",
  ]


@pytest.mark.parametrize("error", [PermissionError(13, "closed"), RuntimeError("too many files")])
def test_what_the_system_does_not_tell_is_looked_for(docs, monkeypatch, error, caplog):
  def refuse(*paths, **settings):
    raise error

  monkeypatch.setattr(watching, "_SECONDS", 0.1)
  seen = watching.changes([str(docs)], outside=str(docs.parent / "kb"))
  with monkeypatch.context() as patch:
    patch.setattr(watchfiles, "watch", refuse)
    assert [next(seen) for _ in range(3)] == [True] * 3
  assert caplog.text.count(str(error)) == 1
  assert [next(seen), next(seen)] == [True, False]  # once it tells them again
