import contextlib
import io
import sys

import tqdm

from realm_jax.foundations import progress


class Terminal(io.StringIO):
  def isatty(self):
    return True


def shown(monkeypatch, items, *, stream, **keywords):
  monkeypatch.setattr(sys, "stderr", stream)
  monkeypatch.setattr(tqdm.tqdm, "__init__", _eager(tqdm.tqdm.__init__))
  assert list(progress.track(items, **keywords)) == items
  return stream.getvalue()


def _eager(init):
  """Shows every update, not only ten per second."""
  return lambda *args, **keywords: init(*args, **keywords, mininterval=0, ncols=100)


def test_a_bar_shows_the_share_that_is_done(monkeypatch):
  text = shown(
    monkeypatch,
    ["a", "b", "c"],
    stream=Terminal(),
    what="letters",
    size=lambda letter: 2,
    fraction=iter([0.25, 0.5, 1.0]).__next__,
  )
  _, _, first, second, last, *cleared = text.split("\r")
  for line, start, count in (
    (first, " 25%|", "2/8"),
    (second, " 50%|", "4/8"),
    (last, "100%|", "6/6"),
  ):
    assert line.startswith(start) and f" {count} [" in line and " letters/s]" in line
  assert "".join(cleared).strip() == ""


def test_a_file_is_not_written_to(monkeypatch):
  assert shown(monkeypatch, [1], stream=io.StringIO(), what="steps") == ""
  monkeypatch.setattr(tqdm, "tqdm", None)  # whose lock a killed process may keep
  assert list(progress.track([1], what="steps")) == [1]


def test_every_moment_belongs_to_the_innermost_activity_also_when_it_fails():
  now = iter([1.0, 2.0, 10.0, 14.0, 20.0, 21.0])
  watch = progress.Stopwatch(lambda: next(now))

  @watch.during("swap")
  def fails():
    raise ValueError

  with watch.during("data"):
    for _ in range(2):
      with contextlib.suppress(ValueError):
        fails()
  assert watch.totals == {"swap": 14.0, "data": 6.0}
