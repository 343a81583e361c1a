"""The text of a PDF, by page, with the headings that its outline or the size of letters tell."""

import collections
import ctypes
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

import pypdfium2
from pypdfium2 import raw

from realm_jax.corpus.formats.outline import Block

_LINE = re.compile(r"[^\r\n\x02\ufffe]+([\x02\ufffe]?)")  # PDFium's marks of a hyphen at its end
_NUMBER = re.compile(r"(?:[A-Z]|\d+)(?:\.\d+)*\.?\s+")  # before a heading
_HYPHENS = "-\u2010\u00ad"
_SPLIT = re.compile(rf"(-?)(\w+)[{_HYPHENS}]\n(?=(\w+)(-?))")
_LONGEST_HEADING = 150  # characters
_HEADING_LINES = 3
_LARGER = 1.1  # than most letters, as those of headings are
_RARE = 0.4  # of all letters, which those of headings are fewer than
_DOTS = re.compile(r"(?:\. ?){4}")  # of a table of contents
_SHORT = 0.75  # of the longest line of a size, as the last of a paragraph is
_APART = 1.3  # of the usual distance between lines, as paragraphs are


class _Line(NamedTuple):
  text: str
  size: int  # of its first letter
  left: float
  right: float
  base: float
  page: int


def read(content: bytes) -> tuple[str, list[Block], list[int], int]:
  """Returns the title that a PDF has, its blocks, the pages without text and how many there are.

  Raises:
    ValueError: If it cannot be read.
  """
  try:
    document = pypdfium2.PdfDocument(content)
  except pypdfium2.PdfiumError as error:
    encrypted = "password" in str(error).lower()
    raise ValueError(
      "it needs a password; save it without" if encrypted else f"it is damaged ({error})"
    ) from error
  pages = [[*_lines(document, number)] for number in range(len(document))]
  headings = _outline(document)
  blank = [number for number, lines in enumerate(pages, start=1) if not lines]
  title = " ".join(document.get_metadata_value("Title").split())
  lines = [line for page in pages for line in page]
  text = "\n".join(line.text for line in lines)
  return title, [*_blocks(lines, headings, frozenset(_words(text)))], blank, len(pages)


def _words(text: str) -> Iterator[str]:
  return (word.lower() for word in re.findall(r"\w+-\w+", text))


def _outline(document: pypdfium2.PdfDocument) -> dict[tuple[int, str], int]:
  """Returns levels of bookmarks, by page and what is compared of a title."""
  levels = {}
  for bookmark in itertools.islice(document.get_toc(max_depth=8), 10_000):
    target = bookmark.get_dest()
    page = target.get_index() if target else None
    if page is not None:
      levels[page + 1, _compared(bookmark.get_title())] = bookmark.level + 1
  return levels


def _compared(title: str) -> str:
  return re.sub(r"[\W_]+", "", _NUMBER.sub("", title, count=1)).lower()


def _lines(document: pypdfium2.PdfDocument, number: int) -> Iterator[_Line]:
  try:
    page = document[number]
    content = page.get_textpage()
    text = content.get_text_range()
  except pypdfium2.PdfiumError:
    return
  # Each has a place among the letters, unless some take two codes in UTF-16.
  has_places = content.count_chars() == len(text)
  for match in _LINE.finditer(text):
    line = match[0].strip()
    line = line[:-1] + "-" if match[1] else line
    if not any(map(str.isalnum, line)) and not line.strip(_HYPHENS):
      continue
    size = left = right = base = 0.0
    if has_places:
      right, _ = _origin(content, match.end() - 1 - len(match[1]))
      left, base = _origin(content, match.start())
      size = raw.FPDFText_GetFontSize(content.raw, match.start())
    yield _Line(line, round(size), left, right, base, number + 1)
  content.close()
  page.close()


def _origin(content: pypdfium2.PdfTextPage, place: int) -> tuple[float, float]:
  x, y = ctypes.c_double(), ctypes.c_double()
  raw.FPDFText_GetCharOrigin(content.raw, place, ctypes.byref(x), ctypes.byref(y))
  return x.value, y.value


def _blocks(
  lines: list[_Line], outline: dict[tuple[int, str], int], hyphenated: frozenset[str]
) -> Iterator[Block]:
  """Yields headings and paragraphs, which lines that are long and near each other form."""
  sizes: collections.Counter[int] = collections.Counter()
  widths: dict[int, float] = {}
  for line in lines:
    sizes[line.size] += len(line.text)
    widths[line.size] = max(widths.get(line.size, 0), line.right - line.left)
  usual = sizes.most_common(1)[0][0] if sizes else 0
  larger = [
    size
    for size in sorted(sizes, reverse=True)
    if size > _LARGER * usual and sizes[size] < _RARE * sizes.total()
  ]
  gaps = [a.base - b.base for a, b in itertools.pairwise(lines) if a.base > b.base]
  pitch = collections.Counter(map(round, gaps)).most_common(1)[0][0] if gaps else 0

  def level(line: _Line) -> int:
    if len(line.text) > _LONGEST_HEADING or not line.text[0].isalnum() or _DOTS.search(line.text):
      return 0
    known = outline.get((line.page, _compared(line.text)))
    return known or (min(larger.index(line.size) + 1, 6) if line.size in larger else 0)

  def block(part: list[_Line]) -> Block:
    pieces = [part[0].text]
    for before, line in itertools.pairwise(part):
      is_short = abs(before.right - before.left) < _SHORT * widths[before.size]
      pieces += ["\n" if is_short or before.text[-1] in _HYPHENS else " ", line.text]
    text = _rejoined("".join(pieces), hyphenated)
    return Block(text, level(part[0]) * (len(part) <= _HEADING_LINES), part[0].page)

  part: list[_Line] = []
  for line in lines:
    if part:
      last, gap = part[-1], part[-1].base - line.base
      is_other = (last.size, level(last)) != (line.size, level(line))
      is_apart = last.page == line.page and gap > _APART * max(pitch, line.size)
      if is_other or is_apart or (last.page != line.page and last.text[-1] in ".!?:"):
        yield block(part)
        part = []
    part.append(line)
  if part:
    yield block(part)


def _rejoined(text: str, hyphenated: frozenset[str]) -> str:
  """Returns a text without the hyphens that only the end of a line has brought."""

  def whole(match: re.Match) -> str:
    before, first, second, after = match.groups()
    is_compound = before or after or f"{first}-{second}".lower() in hyphenated
    keeps = is_compound or not second[0].islower() or not first[-1].isalpha()
    return f"{before}{first}{'-' * bool(keeps)}"

  return _SPLIT.sub(whole, text).replace("\u00ad", "")
