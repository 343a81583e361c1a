"""The process that reads files for `document_files`."""

import json
import textwrap
from collections.abc import Mapping
from typing import Any

from realm_jax.corpus import limits
from realm_jax.corpus.formats import outline
from realm_jax.corpus.formats.outline import Block
from realm_jax.foundations import bounded_process

# Kinds of files that are read here whatever their names say, by their first bytes.
KINDS: Mapping[bytes, str] = {
  b"%PDF-": "pdf",
  b"PK\3\4": "zip",
  b"\xd0\xcf\x11\xe0": "ole",
  b"{\\rtf": "rtf",
}

_LONGEST_REASON = 200  # characters
_TITLE_BLOCKS = 5  # among which the heading is that names a document


def answer(request: bytes) -> bytes:
  """Returns the title, text and outline of a file, as JSON, or why there are none.

  Args:
    request: The kind of the file, a line's end, and its bytes.
  """
  kind, _, content = request.partition(b"\n")
  found: dict[str, Any]
  try:
    found = _read(kind.decode(), content)
  except ModuleNotFoundError as error:
    found = {"missing": error.name}
  except MemoryError:
    found = {"error": f"it needs more than {limits.DOCUMENT_MEMORY:,} bytes of memory"}
  except ValueError as error:
    found = {"error": str(error)}
  except Exception as error:  # of a file that is not as its format has it
    found = {"error": f"it is damaged ({type(error).__name__}: {error})"}
  if "error" in found:  # which may quote the file
    found["error"] = textwrap.shorten(found["error"], _LONGEST_REASON, placeholder=" ...")
  return json.dumps(found).encode()


def _read(kind: str, content: bytes) -> dict[str, Any]:
  blank: list[int] = []
  pages = 0
  if kind == "pdf":
    from realm_jax.corpus.formats import pdf_text  # late, because it needs an extra

    title, blocks, blank, pages = pdf_text.read(content)
  else:
    title, blocks = _blocks(kind, content)
  text, marks = outline.joined(blocks)
  first = [block for block in blocks[:_TITLE_BLOCKS] if block.level]
  heading = min(first, key=lambda block: block.level).text if first else ""
  heading = " ".join(heading.split())
  return {
    "title": title, "text": text, "outline": marks, "heading": heading, "blank": blank,
    "pages": pages,
  }  # fmt: skip


def _blocks(kind: str, content: bytes) -> tuple[str, list[Block]]:
  from realm_jax.corpus.formats import html_page, mail_text, office_text, rtf_text

  if kind == "ole":
    raise ValueError(
      "a file of Office before 2007, or one with a password; save it as DOCX, PPTX or XLSX"
    )
  if kind == "html":
    return html_page.read(html_page.decoded(content))
  if kind == "mail":
    return mail_text.read(content, attachment=_attachment)
  return {"zip": office_text.read, "rtf": rtf_text.read}[kind](content)


def _attachment(content: bytes) -> list[Block] | None:
  """Returns the blocks of what is attached to mail; None if it is of no kind that is read."""
  kind = next((KINDS[magic] for magic in KINDS if content.startswith(magic)), None)
  try:
    if kind == "pdf":
      from realm_jax.corpus.formats import pdf_text  # late, because it needs an extra

      return [*pdf_text.read(content)[1]]
    return _blocks(kind, content)[1] if kind else None
  except (ModuleNotFoundError, ValueError) as error:
    raise ValueError(str(error)) from error
  except Exception as error:  # of a file that is not as its format has it
    raise ValueError(f"it is damaged ({type(error).__name__})") from error


if __name__ == "__main__":
  bounded_process.answer_requests(
    answer, memory=limits.DOCUMENT_MEMORY, seconds=limits.DOCUMENT_SECONDS
  )
