"""PDF, office files, pages and mail as documents, read in a process of its own within bounds."""

import functools
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from realm_jax.corpus import limits
from realm_jax.corpus.documents import BadRecord, Record, make_record
from realm_jax.corpus.formats.document_reader import KINDS
from realm_jax.corpus.formats.outline import Mark
from realm_jax.corpus.input_files import InputFile, stem, unreadable
from realm_jax.foundations import extras
from realm_jax.foundations.bounded_process import BoundedProcess

_PAGES_NAMED = 10
# Titles that programs give, and no author.
_NO_TITLE = re.compile(
  r"\(anonymous\)|untitled.*|(?:powerpoint )?presentation|(?:word )?document|slide 1|"
  r"microsoft \w+ - .*|.*\.(?:docx?|html?|indd|odt|pdf|pptx?|rtf|tex|txt|xlsx?)",
  re.IGNORECASE,
)


@functools.cache
def _reader() -> BoundedProcess:
  return BoundedProcess("realm_jax.corpus.formats.document_reader", seconds=limits.DOCUMENT_SECONDS)


def read(content: BinaryIO, *, file: InputFile) -> Iterator[Record]:
  """Yields the document of a file, and a bad record for its pages without text.

  Raises:
    ValueError: If a library is missing.
  """
  body = content.read(limits.DOCUMENT + 1)
  if len(body) > limits.DOCUMENT:
    yield _broken(file, f"more than {limits.DOCUMENT:,} bytes; divide it")
    return
  kind = next((KINDS[magic] for magic in KINDS if body.startswith(magic)), _named(file))
  if not kind:
    yield _broken(file, "not what its name says")
    return
  try:
    found = json.loads(_reader()(kind.encode() + b"\n" + body))
  except TimeoutError as error:
    yield unreadable(file.path, error)  # it may be in time on a machine with less to do
    return
  except ChildProcessError as error:
    yield _broken(file, str(error))
    return
  if reason := found.get("missing"):
    raise ValueError(f"{file.shown} needs {reason}: {extras.how_to_install('documents')}")
  if reason := found.get("error"):
    yield _broken(file, reason)
    return
  yield from _records(found, file)


def _records(found: dict[str, Any], file: InputFile) -> Iterator[Record]:
  blank, text, pages = found["blank"], found["text"], found["pages"]
  if not text:
    reason = (
      f"no text on its pages ({pages:,}); recognize it first if they are scans" if pages else ""
    )
    yield BadRecord(kind="records_without_text", name=file.shown, reason=reason)
    return
  marks = [Mark(*mark) for mark in found["outline"]]
  title = found["title"]
  if not title or _NO_TITLE.fullmatch(title):
    title = found["heading"] or stem(file.id)
  record = {"title": title, "text": text}
  yield make_record(record, default_id=file.id, name=file.shown, outline=marks)
  if blank:
    more = f" and {len(blank) - _PAGES_NAMED:,} more" if len(blank) > _PAGES_NAMED else ""
    pages = ", ".join(map(str, blank[:_PAGES_NAMED])) + more
    yield BadRecord(
      kind="records_without_text", name=f"{file.shown}: page {pages}", reason="a scan, or empty"
    )


def _named(file: InputFile) -> str:
  """Returns the kind of text that a file's name tells, or ""."""
  name = file.path.lower().removesuffix(".gz").removesuffix(".bz2")
  return "mail" if name.endswith(".eml") else "html" if name.endswith(("htm", "html")) else ""


def _broken(file: InputFile, reason: str) -> BadRecord:
  return BadRecord(kind="broken_records", name=file.shown, reason=reason)
