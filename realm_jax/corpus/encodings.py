"""Text files in UTF-8 or UTF-16, with and without a mark at the beginning."""

import codecs
import io
from collections.abc import Callable
from typing import BinaryIO, TextIO

NOT_UTF8 = "not UTF-8; convert it"
_HAS_NUL = "NUL characters, which no text has; convert it to UTF-8"


class TextFile:
  """Opens the text of a file, again each time that it is called.

  Lines end as they do in the file. Bytes that are not UTF-8 become halves of surrogate pairs, so
  that one bad byte does not end the file.

  Args:
    open: Opens the bytes; what it returns stays open.
    newline: See `io.TextIOWrapper`.
  """

  def __init__(self, open: Callable[[], BinaryIO], *, newline: str):
    self._open = open
    self._newline = newline
    self._text: io.TextIOWrapper | None = None

  def __call__(self) -> TextIO:
    self.detach()
    encoding = _encoding(self._open().read(4))
    self._text = io.TextIOWrapper(
      self._open(), encoding, errors="surrogateescape", newline=self._newline
    )
    return self._text

  def detach(self) -> None:
    """Leaves the bytes open when the text is closed."""
    if self._text is not None and not self._text.closed:
      self._text.detach()
    self._text = None


def _encoding(start: bytes) -> str:
  if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
    return "utf-32"
  if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
    return "utf-16"
  # In UTF-16 one byte of each ASCII character is 0.
  is_zero = tuple(byte == 0 for byte in start)
  if is_zero == (False, True, False, True):
    return "utf-16-le"
  return "utf-16-be" if is_zero == (True, False, True, False) else "utf-8-sig"


def broken(text: str) -> str | None:
  """Returns what is wrong with a text of a file, if anything."""
  if "\0" in text:
    return _HAS_NUL
  try:
    text.encode()
  except UnicodeEncodeError:
    return NOT_UTF8
  return None
