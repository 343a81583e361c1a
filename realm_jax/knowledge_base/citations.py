"""Citations of numbered passages: `[2]`, `[1, 3-5]`, `【2†source】`, `[passages 1 and 2]`.

Code has brackets too. What stands between backticks cites nothing, nor do subscripts such as `x[0]`
outside of them if what is before or after the bracket shows that they are code. Intervals and
classes of characters, which begin with 0, cite nothing either.
"""

import re
from collections.abc import Iterator

_BRACKETS = re.compile(r"\\?[\[［【〔〖]([^\[\]［］【】〔〕〖〗]{1,200})[\]］】〕〗]")
_NAME = (
  r"passages?|passagen?|pasajes?|sources?|quellen?|refs?\.?|references?|docs?\.?|documents?|"
  r"citations?|notes?|nos?\.|段落|来源|來源|出典|№|#|\^"
)
_NUMBER = rf"(?:(?:{_NAME}):? ?)?\d{{1,6}}"
_TO = r"(?: ?(?:[-‐‑‒–—−~～〜…]|\.{2,3}|至|到|から) ?| (?:to|through|bis) )"
_AND = r"(?: ?[和及与と및&] ?| (?:and|und|et|y|e|en|och|og|oraz|и|va|ve|dan) )"
_LIST = re.compile(
  rf"{_NUMBER}(?:(?:{_TO}|{_AND}| ?[,，、،;；+/](?:{_AND}| ?)){_NUMBER})* ?\\?", re.I
)
_RANGE = re.compile(rf"(\d+)(?:{_TO}(?:(?:{_NAME}):? ?)?(\d+))?", re.I)
_BACKTICKS = re.compile(r"`+|^~{3,}", re.M)
_LONGEST_RUN = 8  # of backticks; longer ones count as this
_MOST_NUMBERS = 100  # of a range
_CODE_BEFORE = re.compile(
  r"(?:\w_\w*|(?:^|[\s(=,;+*/<>!])(?:[a-z]|_\w+|arg[sv]|arr|buf|char|dp|int|ptr)|"
  r"\w\((?!(?:e?[nrs]|e)\))[^()\s]*\)|\w\[[\"']?[A-Za-z_]\w*[\"']?\])$"
)
_CODE_AFTER = re.compile(r"\s*(?:[-+*/]?=|\.[a-z_]+\()")
_BEFORE = 32  # characters that are looked at


def numbers(text: str) -> Iterator[int]:
  """Yields the numbers that a text cites, also of lists and ranges."""
  for citation in _citations(text):
    for first, last in _RANGE.findall(_list_in(citation)):
      start, end = int(first), int(last or first)
      yield from range(start, end + 1) if 0 <= end - start < _MOST_NUMBERS else (start, end)


def in_parentheses(text: str) -> str:
  """Returns a text that cites nothing, because its citations have parentheses."""
  parts, last = [], 0
  for citation in _citations(text):
    inside = citation[1].rstrip("\\")
    parts += [text[last : citation.start()], f"({inside})"]
    last = citation.end()
  return "".join([*parts, text[last:]])


def without_code(text: str) -> str:
  """Returns a text of the same length with spaces for what Markdown shows as code."""
  runs = [run.span() for run in _BACKTICKS.finditer(text)]
  closing: list[int | None] = [None] * len(runs)
  following: dict[tuple[str, int], int] = {}
  for number, (start, end) in reversed([*enumerate(runs)]):
    kind = text[start], min(end - start, _LONGEST_RUN)
    closing[number], following[kind] = following.get(kind), number
  parts, last, after = [], 0, 0
  for number, (start, end) in enumerate(runs):
    if number < after:
      continue
    closed = closing[number]
    limit = len(text) if closed is None else runs[closed][1]
    if closed is None or text.find("\n\n", start, limit) >= 0:
      indent = text[text.rfind("\n", 0, start) + 1 : start]
      if end - start < 3 or indent.strip():
        continue  # opens neither code of a line nor a block, which may lack its end
    parts += [text[last:start], " " * (limit - start)]
    last, after = limit, len(runs) if closed is None else closed + 1
  return "".join([*parts, text[last:]])


def _citations(text: str) -> Iterator[re.Match[str]]:
  text = without_code(text)
  subscript = -1  # where one ended
  for found in _BRACKETS.finditer(text):
    cited = _list_in(found)
    if not _LIST.fullmatch(cited):
      continue
    if found.start() == subscript or _is_code(text, found, cited):
      subscript = found.end()
      continue
    yield found


def _list_in(found: re.Match[str]) -> str:
  return " ".join(found[1].partition("†")[0].split())  # and so matched in linear time


def _is_code(text: str, found: re.Match[str], cited: str) -> bool:
  start, end = found.span()
  if re.match(r"0+ ?[^\d\\]", cited):
    return True
  if re.match(r"[+{]", text[end : end + 1]) and "-" in cited:
    return True
  if not start or not (text[start - 1].isalnum() or text[start - 1] in "_)]"):
    return False
  before, after = text[max(0, start - _BEFORE) : start], text[end : end + _BEFORE]
  is_zero = not cited.strip("0\\")
  return bool(is_zero or _CODE_BEFORE.search(before) or _CODE_AFTER.match(after))
