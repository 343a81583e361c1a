"""WikiExtractor's output: files of `<doc>` elements, or of JSON Lines if it ran with `--json`."""

import dataclasses
import html
import itertools
import re
from collections.abc import Iterable, Iterator

from realm_jax.corpus.documents import (
  NOT_UTF8,
  BadRecord,
  Document,
  Record,
  make_record,
  read_json_lines,
)
from realm_jax.corpus.input_files import InputFile

# A title appears in the tag unescaped, including quotation marks.
_START = re.compile(rb'<doc id="([^"]*)".*? title="(.*)">\s*$')
_END = b"</doc>"


def read_wikiextractor(lines: Iterable[bytes], *, file: InputFile) -> Iterator[Record]:
  """Yields the pages of one file, HTML entities resolved and the title removed from the text."""
  lines = iter(lines)
  leading = list(itertools.islice(itertools.dropwhile(lambda line: not line.strip(), lines), 1))
  is_json = bool(leading) and leading[0].lstrip().startswith(b"{")
  read = read_json_lines if is_json else _read_elements
  for record in read(itertools.chain(leading, lines), file=file):
    yield _cleaned(record, file.path) if isinstance(record, Document) else record


def _read_elements(lines: Iterable[bytes], *, file: InputFile) -> Iterator[Record]:
  tag, body = None, []
  page = 0
  for line in lines:
    start = _START.match(line)
    if start:
      if tag:
        yield _broken(file, page, "no </doc> ends it")
      tag, body = start, []
      page += 1
    elif line.strip() == _END and tag:
      yield _page(tag, body, file=file, page=page)
      tag = None
    elif tag:
      body.append(line)
    elif line.strip():
      page += 1
      yield _broken(file, page, 'no <doc id="..." title="..."> begins it')
  if tag:
    yield _broken(file, page, "no </doc> ends it")


def _broken(file: InputFile, page: int, reason: str) -> BadRecord:
  return BadRecord(kind="broken_records", name=f"{file.path}:page {page}", reason=reason)


def _page(tag: re.Match, body: list[bytes], *, file: InputFile, page: int) -> Record:
  try:
    fields = {
      "id": tag.group(1).decode(),
      "title": tag.group(2).decode(),
      "text": b"".join(body).decode(),
    }
  except UnicodeDecodeError:
    return _broken(file, page, NOT_UTF8)
  return make_record(fields, default_id=f"{file.name}:{page}", name=f"{file.path}:page {page}")


def _cleaned(document: Document, path: str) -> Record:
  title = html.unescape(document.title)
  first, _, rest = document.text.partition("\n")
  text = html.unescape(rest if first.strip() == document.title.strip() else document.text)
  if not text.strip():
    return BadRecord(kind="records_without_text", name=f"{path}:id {document.id}")
  return dataclasses.replace(document, title=title, text=text.strip())
