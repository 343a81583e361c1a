"""The text of DOCX, PPTX, XLSX, ODT, ODP, ODS and EPUB: parts of XML in a zip file."""

import datetime
import io
import posixpath
import re
import urllib.parse
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from realm_jax.corpus import limits
from realm_jax.corpus.formats import html_page
from realm_jax.corpus.formats.outline import Block

# Earlier versions, notes of reviewers, fields, and what is there twice.
_HIDDEN = frozenset(
  "moveFrom pPrChange rPrChange Fallback fld tracked-changes annotation note-citation rPh "
  "forms sequence-decls".split()
)
_TABLES, _ROWS, _CELLS = ("tbl", "table"), ("tr", "table-row"), ("tc", "table-cell")
_SPACES = {"tab": "\t", "br": "\n", "cr": "\n", "line-break": "\n", "noBreakHyphen": "-"}
_PAGES = ("lastRenderedPageBreak", "soft-page-break")
_FURNITURE = ("sldNum", "dt", "ftr", "hdr")
_EDGES = ("header", "header-first", "header-left", "footer", "footer-first", "footer-left")
_DATE = re.compile(r"[ymdhs]", re.IGNORECASE)
_LITERALS = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.')  # of a format of numbers
_DATES = {*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)}  # formats without a name
_MOST_SPACES = 100


class _Parts:
  """The parts of a zip file, of which no more is unpacked than of any compressed file."""

  def __init__(self, content: bytes):
    try:
      self._zip = zipfile.ZipFile(io.BytesIO(content))
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
      raise ValueError(f"it is damaged ({error}); download it again") from error
    self.names = frozenset(self._zip.namelist())
    self._size, self._unpacked = len(content), 0

  def read(self, name: str) -> bytes:
    """Returns a part; empty if there is none."""
    if name not in self.names:
      return b""
    try:
      with self._zip.open(name) as part:
        content = part.read(max(limits.UNPACKED, limits.UNPACKED_TIMES * self._size) + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
      raise ValueError(f"it is damaged ({error}); download it again") from error
    except RuntimeError as error:
      raise ValueError("it needs a password; save it without") from error
    self._unpacked += len(content)
    if reason := limits.unpacked_error(self._size, self._unpacked):
      raise ValueError(reason)
    return content

  def xml(self, name: str) -> bytes:
    """Returns the XML of a part; empty if there is none."""
    content = self.read(name)
    if b"<!ENTITY" in content or b"<!ENTITY" in content[:4096].replace(b"\0", b""):
      raise ValueError("it declares entities, which may multiply")
    return content

  def tree(self, name: str) -> Element:
    """Returns the XML of a part, without namespaces; an empty element if there is none."""
    content = self.xml(name)
    root = ElementTree.fromstring(content) if content else Element("none")
    for element in root.iter():
      element.tag = element.tag.rpartition("}")[2]
      element.attrib = {key.rpartition("}")[2]: value for key, value in element.items()}
    return root

  def targets(self, name: str) -> dict[str, str]:
    """Returns the parts that a part refers to, by their id there."""
    folder, base = posixpath.split(name)
    return {
      each.get("Id", ""): _inside(folder, each.get("Target", ""))
      for each in self.tree(posixpath.join(folder, "_rels", f"{base}.rels"))
      if each.get("TargetMode") != "External"
    }


def read(content: bytes) -> tuple[str, list[Block]]:
  """Returns the title that a file has, and its blocks.

  Raises:
    ValueError: If it is damaged, encrypted, or of none of these formats.
  """
  parts = _Parts(content)
  for name, reader in _READERS.items():
    if name in parts.names:
      packages = sorted(name for name in parts.names if name.endswith(".opf"))
      about = map(parts.tree, ("docProps/core.xml", "meta.xml", *packages[:1]))
      titles = [title.text or "" for tree in about for title in tree.iter("title")]
      return " ".join("".join(titles[:1]).split()), [*reader(parts, name)]
  raise ValueError("it is a ZIP archive; unpack it")


def _inside(folder: str, target: str) -> str:
  return posixpath.normpath(posixpath.join("/", folder, urllib.parse.unquote(target))).lstrip("/")


class _Text:
  """Finds paragraphs and tables.

  Args:
    levels: Of the headings that are of some styles.
    page: The first one; 0 if nobody has counted them.
    is_mixed: Whether all that is in a paragraph is text, and not only what `t` has.
  """

  def __init__(self, *, levels: Mapping[str, int], page: int, is_mixed: bool = False):
    self._levels, self._page, self._is_mixed = levels, page, is_mixed

  def blocks(self, element: Element, *, level: int = 0) -> Iterator[Block]:
    tag = element.tag
    if tag in _HIDDEN:
      return
    if tag in _TABLES:
      rows = (_joined(self._cells(row)) for row in _nearest(element, _ROWS))
      yield Block("\n".join(filter(None, rows)), 0, self._page)
    elif tag in ("p", "h"):
      inner: list[Block] = []
      pieces = [(piece, self._page) for piece in self._pieces(element, inner)]
      page = next((page for piece, page in pieces if piece.strip()), self._page)
      text = "".join(piece for piece, _ in pieces)
      yield Block(text.strip(), self._level(element) or level, page)
      yield from inner
    else:
      kinds = {each.get("type", "") for each in element.iter("ph")} if tag == "sp" else set()
      if kinds.intersection(_FURNITURE):
        return
      is_title = kinds & {"title", "ctrTitle"} or element.get("class") == "title"
      self._page += tag == "page" and self._is_mixed
      for child in element:
        yield from self.blocks(child, level=1 if is_title else level)

  def _cells(self, row: Element) -> Iterator[str]:
    for cell in _nearest(row, _CELLS):
      yield _joined(block.text for child in cell for block in self.blocks(child))

  def _level(self, paragraph: Element) -> int:
    if paragraph.tag == "h":
      return int(paragraph.get("outline-level", 1))
    levels = [
      self._levels.get(each.get("val", ""), 0)
      if each.tag == "pStyle"
      else (int(each.get("val", 9)) + 1) % 10
      for each in paragraph.findall("pPr/*")
      if each.tag in ("pStyle", "outlineLvl")
    ]
    return max(levels, default=0)

  def _pieces(self, element: Element, inner: list[Block]) -> Iterator[str]:
    """Yields the text of a paragraph; what stands in it for itself, such as a note, is added."""
    if self._is_mixed or element.tag == "t":
      yield element.text or ""
    for child in element:
      if child.tag in ("p", "h", *_TABLES):
        inner += self.blocks(child)
      elif child.tag in _SPACES:
        yield _SPACES[child.tag]
      elif child.tag == "s" and self._is_mixed:
        yield " " * min(int(child.get("c", 1)), _MOST_SPACES)
      elif child.tag not in _HIDDEN:
        self._page += child.tag in _PAGES
        yield from self._pieces(child, inner)
      if self._is_mixed:
        yield child.tail or ""


def _nearest(element: Element, tags: Sequence[str]) -> Iterator[Element]:
  """Yields the elements below one that are of some kind, and below no other of these."""
  for child in element:
    if child.tag in tags:
      yield child
    else:
      yield from _nearest(child, tags)


def _joined(texts: Iterable[str]) -> str:
  return " ".join(filter(None, texts))


def _docx(parts: _Parts, name: str) -> Iterator[Block]:
  document, levels = parts.tree(name), _heading_styles(parts.tree("word/styles.xml"))
  has_pages = next(document.iter("lastRenderedPageBreak"), None) is not None
  yield from _Text(levels=levels, page=int(has_pages)).blocks(document)
  for notes in ("word/footnotes.xml", "word/endnotes.xml"):
    yield from _Text(levels={}, page=0).blocks(parts.tree(notes))
  edges = sorted(filter(re.compile(r"word/(?:header|footer)\d*\.xml").fullmatch, parts.names))
  yield from _once(_Text(levels={}, page=0), map(parts.tree, edges))


def _once(text: "_Text", edges: Iterable[Element]) -> Iterator[Block]:
  """Yields what stands above and below pages, each once."""
  yield from dict.fromkeys(block for edge in edges for block in text.blocks(edge))


def _heading_styles(styles: Element) -> dict[str, int]:
  levels: dict[str, int] = {}
  for style in styles.iter("style"):
    values = {each.tag: each.get("val", "") for each in style.iter()}
    name = values.get("name", "").lower()
    number = re.fullmatch(r"heading (\d)", name)
    level = int(number[1]) if number else int(name == "title")
    if not level and (outline := values.get("outlineLvl", "9")).isdigit() and int(outline) < 9:
      level = int(outline) + 1
    levels[style.get("styleId", "")] = level or levels.get(values.get("basedOn", ""), 0)
  return levels


def _pptx(parts: _Parts, name: str) -> Iterator[Block]:
  for number, slide in enumerate(_listed(parts, name, "sldId"), start=1):
    notes = [part for part in parts.targets(slide[0]).values() if "notesSlide" in part]
    for part in (slide[0], *notes):
      yield from _Text(levels={}, page=number).blocks(parts.tree(part))


def _listed(parts: _Parts, name: str, tag: str) -> list[tuple[str, str]]:
  """Returns the parts that a part lists, in its order, with their names."""
  targets = parts.targets(name)
  return [
    (targets[value], each.get("name", ""))
    for each in parts.tree(name).iter(tag)
    for value in each.attrib.values()
    if value in targets
  ]


def _xlsx(parts: _Parts, name: str) -> Iterator[Block]:
  shared = [
    "".join(text.text or "" for each in item if each.tag != "rPh" for text in each.iter("t"))
    for item in parts.tree("xl/sharedStrings.xml").iter("si")
  ]
  dates = _date_styles(parts.tree("xl/styles.xml"))
  first = datetime.datetime(1899, 12, 30)  # by which days count from March 1900 on
  if b'date1904="1"' in parts.read(name):
    first = datetime.datetime(1904, 1, 1)

  def value(cell: Element) -> str:
    kind = cell.get("t", "n")
    text = "".join(each.text or "" for each in cell.iter() if each.tag in ("v", "t"))
    try:
      if kind == "s":
        return " ".join(shared[int(text)].split())
      if kind == "n" and text:
        number, style = float(text), int(cell.get("s", 0))
        is_date = style < len(dates) and dates[style]
        return _date(first, number) if is_date else f"{number:.15g}"
    except (ValueError, IndexError, OverflowError):
      return text
    return {"b": {"1": "TRUE", "0": "FALSE"}.get(text, text), "e": ""}.get(kind, text)

  for sheet, title in _listed(parts, name, "sheet"):
    yield Block(title, 1)
    rows = (_joined(map(value, cells)) for cells in _rows(parts.xml(sheet)))
    yield Block("\n".join(filter(None, rows)))


def _rows(sheet: bytes) -> Iterator[list[Element]]:
  """Yields the cells of each row that have something; of most, formats alone are there."""
  cells: list[Element] = []
  inside: list[Element] = []
  for event, element in ElementTree.iterparse(io.BytesIO(sheet), ("start", "end")):
    tag = element.tag.rpartition("}")[2]
    if event == "start":
      inside.append(element)
      continue
    inside.pop()
    if tag == "c" and len(element):
      for each in element.iter():
        each.tag = each.tag.rpartition("}")[2]
      cells.append(element)
    elif tag == "row":
      yield cells
      cells = []
    if tag in ("c", "row") and inside:
      inside[-1].clear()


def _date_styles(styles: Element) -> list[bool]:
  """Returns whether numbers in cells of each style are dates."""
  named = {
    each.get("numFmtId"): bool(_DATE.search(_LITERALS.sub("", each.get("formatCode", ""))))
    for each in styles.iter("numFmt")
  }
  numbers = [each.get("numFmtId", "0") for each in styles.findall("cellXfs/xf")]
  return [named.get(number, number in map(str, _DATES)) for number in numbers]


def _date(first: datetime.datetime, days: float) -> str:
  moment = first + datetime.timedelta(seconds=round(days * 86_400))
  if days < 1:
    return f"{moment:%H:%M:%S}"
  return f"{moment:%Y-%m-%d}" if days == int(days) else f"{moment:%Y-%m-%d %H:%M:%S}"


def _odf(parts: _Parts, name: str) -> Iterator[Block]:
  if b"encryption-data" in parts.read("META-INF/manifest.xml"):
    raise ValueError("it needs a password; save it without")
  tree = parts.tree(name)
  has_pages = next(tree.iter("soft-page-break"), None) is not None
  text = _Text(levels={}, page=int(has_pages), is_mixed=True)
  if (sheets := next(tree.iter("spreadsheet"), None)) is None:
    yield from text.blocks(tree)
    styles = parts.tree("styles.xml") if next(tree.iter("text"), None) is not None else ()
    edges = [each for page in styles for each in page.iter() if each.tag in _EDGES]
    yield from _once(_Text(levels={}, page=0, is_mixed=True), edges)
  else:
    for sheet in sheets.findall("table"):
      yield Block(sheet.get("name", ""), 1)
      yield from text.blocks(sheet)


def _epub(parts: _Parts, name: str) -> Iterator[Block]:
  root = next(parts.tree(name).iter("rootfile"), Element("none")).get("full-path", "")
  package = parts.tree(root)
  hrefs = {item.get("id"): item.get("href", "") for item in package.iter("item")}
  protected = urllib.parse.unquote(parts.read("META-INF/encryption.xml").decode(errors="replace"))
  for each in package.iter("itemref"):
    chapter = _inside(posixpath.dirname(root), hrefs.get(each.get("idref"), ""))
    if chapter and f'"{chapter}"' in protected:
      raise ValueError("it is protected against copying")
    yield from html_page.read(html_page.decoded(parts.read(chapter)))[1]


# By a part that only such a file has.
_READERS: Mapping[str, Callable[[_Parts, str], Iterator[Block]]] = {
  "word/document.xml": _docx,
  "ppt/presentation.xml": _pptx,
  "xl/workbook.xml": _xlsx,
  "META-INF/container.xml": _epub,
  "content.xml": _odf,
}
