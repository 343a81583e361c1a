"""Where the pages and the sections of a text begin."""

from collections.abc import Iterable
from typing import NamedTuple

from realm_jax.corpus import limits


class Block(NamedTuple):
  """A paragraph, a table or a heading.

  Attributes:
    level: Of a heading, 1 for the highest; 0 for what is none.
    page: Where it begins, from 1; 0 where there are no pages.
  """

  text: str
  level: int = 0
  page: int = 0


class Mark(NamedTuple):
  """A page or a section that begins.

  Attributes:
    start: The first character of the text that it holds for, up to the next mark.
    heading: The nearest heading; "" above the first one.
  """

  start: int
  page: int
  heading: str


def joined(blocks: Iterable[Block]) -> tuple[str, tuple[Mark, ...]]:
  """Returns the text of blocks, with an empty line between them, and its outline."""
  texts, marks, place, page, heading = [], [], 0, 0, ""
  for block in blocks:
    text = block.text if texts else block.text.lstrip()
    if not text.strip():
      continue
    heading = " ".join(text.split())[: limits.HEADING] if block.level else heading
    if block.level or block.page != page:
      page = block.page
      marks.append(Mark(place, page, heading))
    texts.append(text)
    place += len(text) + 2
  return "\n\n".join(texts), tuple(marks)
