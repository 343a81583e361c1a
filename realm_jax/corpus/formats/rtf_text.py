"""The text of RTF."""

import re

from realm_jax.corpus.formats.outline import Block

_TOKEN = re.compile(
  r"\\([a-zA-Z]+)(-?\d{1,9})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z'])|([{}])|[\r\n]+|([^\\{}\r\n]+)"
)
# Groups without text of the document.
_HIDDEN = frozenset(
  "annotation colortbl datastore fldinst fonttbl footer footerf footerl footerr generator header "
  "headerf headerl headerr info latentstyles listoverridetable listtable nonshppict objdata "
  "pict pntext revtbl rsidtbl stylesheet themedata xmlnstbl".split()
)
_CHARACTERS = {
  "tab": "\t", "line": "\n", "cell": " ", "row": "\n", "emdash": "\u2014", "endash": "\u2013",
  "lquote": "\u2018", "rquote": "\u2019", "ldblquote": "\u201c", "rdblquote": "\u201d",
  "bullet": "\u2022", "~": "\u00a0", "_": "-", "\\": "\\", "{": "{", "}": "}", "nestcell": " ",
}  # fmt: skip
_CODE_PAGE = 1252


def read(content: bytes) -> tuple[str, list[Block]]:
  """Returns the title and the blocks of an RTF file."""
  source, reader = content.decode("latin-1"), _Reader()
  place = 0
  while match := _TOKEN.search(source, place):
    place = match.end()
    word, number, byte, symbol, brace, text = match.groups()
    if word == "bin":
      place += max(0, int(number or 0))
    elif brace:
      reader.brace(brace)
    elif byte:
      reader.bytes_of(bytes.fromhex(byte))
    elif text:
      reader.bytes_of(text.encode("latin-1"))
    elif word or symbol:
      reader.control(word or symbol, None if number is None else int(number))
  reader.paragraph()
  return " ".join(reader.title.split()), reader.blocks


class _Reader:
  """What a group has changed ends with it."""

  def __init__(self) -> None:
    self.blocks: list[Block] = []
    self.title = ""
    self._texts: list[str] = []
    self._bytes = b""
    self._level = 0
    self._code_page = _CODE_PAGE
    self._skip = 0  # bytes that stand for a character that was read
    self._groups: list[tuple[str, int]] = []
    self._kind, self._width = "", 1  # of the group, and bytes that follow a character

  def brace(self, brace: str) -> None:
    self._decode()
    if brace == "{":
      self._groups.append((self._kind, self._width))
    elif self._groups:
      self._kind, self._width = self._groups.pop()

  def control(self, word: str, number: int | None) -> None:
    self._decode()
    if word == "*" or word in _HIDDEN:
      self._kind = self._kind or "hidden"
    elif word == "title" and self._kind == "hidden":
      self._kind = "title"
    elif word in ("par", "sect", "page"):
      self.paragraph()
    elif word == "pard":
      self._level = 0
    elif word == "outlinelevel":
      self._level = (number or 0) + 1 if (number or 0) < 9 else 0
    elif word == "ansicpg":
      self._code_page = number or _CODE_PAGE
    elif word == "uc":
      self._width = number or 0
    elif word == "u":
      self._add(chr((number or 0) % 65536))
      self._skip = self._width
    elif word in _CHARACTERS:
      self._add(_CHARACTERS[word])

  def bytes_of(self, content: bytes) -> None:
    skipped = min(self._skip, len(content))
    self._skip -= skipped
    self._bytes += content[skipped:]

  def paragraph(self) -> None:
    self._decode()
    text = "".join(self._texts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if text.strip():
      self.blocks.append(Block(text.strip(), self._level))
    self._texts.clear()

  def _decode(self) -> None:
    content, self._bytes, self._skip = self._bytes, b"", 0
    if content:
      try:
        self._add(content.decode(f"cp{self._code_page}", "replace"))
      except LookupError:
        self._add(content.decode("latin-1"))

  def _add(self, text: str) -> None:
    if self._kind == "title":
      self.title += text
    elif not self._kind:
      self._texts.append(text)
