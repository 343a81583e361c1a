import io
import sys

from realm_jax import progress


class Terminal(io.StringIO):
  def isatty(self):
    return True


def shown(monkeypatch, items, *, stream, **keywords):
  monkeypatch.setattr(sys, "stderr", stream)
  monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0)
  assert list(progress.track(items, **keywords)) == items
  return stream.getvalue()


def test_a_bar_shows_the_share_that_is_done(monkeypatch):
  text = shown(
    monkeypatch,
    ["a", "b", "c"],
    stream=Terminal(),
    what="letters",
    size=lambda letter: 2,
    fraction=iter([0.25, 0.5, 1.0]).__next__,
  )
  first, second, last, cleared = text.split("\r")[1:]
  assert first.startswith("[#####...............]  25%  2 letters, ")
  assert second.startswith("[##########..........]  50%  4 letters, ")
  assert last.startswith("[####################] 100%  6 letters, ")
  assert cleared == "\033[K"


def test_without_a_share_there_is_no_bar(monkeypatch):
  text = shown(monkeypatch, [1, 2], stream=Terminal(), what="steps")
  assert text.startswith("\r1 steps, ") and "[" not in text.replace("\033[K", "")


def test_a_file_is_not_written_to(monkeypatch):
  assert shown(monkeypatch, [1], stream=io.StringIO(), what="steps") == ""
