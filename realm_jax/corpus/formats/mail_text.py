"""The text of a message of mail, with that of what is attached."""

import contextlib
import email
import email.policy
from collections.abc import Callable, Iterator
from email.message import EmailMessage, MIMEPart
from typing import cast

from realm_jax.corpus import limits
from realm_jax.corpus.formats import charsets, html_page
from realm_jax.corpus.formats.outline import Block

_HEADERS = ("From", "To", "Cc", "Date")
_DEEPEST = 5  # messages in messages
_LOWEST_HEADING = 6


def read(
  content: bytes, *, attachment: Callable[[bytes], list[Block] | None]
) -> tuple[str, list[Block]]:
  """Returns the subject and the blocks of a message.

  Args:
    attachment: Returns the blocks of a file; None if it is of no kind that is read.
  """
  message = _parsed(content)
  if not message.keys():
    raise ValueError("it is no message of mail")
  blocks, size = [], 0
  for block in _blocks(message, attachment, depth=0):
    size += len(block.text)
    if size > limits.RECORD // 2:
      blocks.append(Block("The rest was not read, because it is too long."))
      break
    blocks.append(block)
  return _header(message, "Subject"), blocks


def _parsed(content: bytes) -> EmailMessage:
  return cast(EmailMessage, email.message_from_bytes(content, policy=email.policy.default))


def _header(message: EmailMessage, name: str) -> str:
  """Returns a header, also of programs that send bytes as they are."""
  raw = next((str(value) for key, value in message.raw_items() if key.lower() == name.lower()), "")
  names = ["utf-8", message.get_content_charset("utf-8")]
  text = " ".join(charsets.decoded(raw.encode("utf-8", "surrogateescape"), names).split())
  with contextlib.suppress(Exception):  # of addresses that are none
    text = str(email.policy.default.header_factory(name, text))
  return " ".join(text.split())


def _blocks(
  message: EmailMessage, attachment: Callable[[bytes], list[Block] | None], *, depth: int
) -> Iterator[Block]:
  headers = [(name, _header(message, name)) for name in _HEADERS]
  yield Block("\n".join(f"{name}: {text}" for name, text in headers if text))
  body = message.get_body(("plain", "html"))
  if body is not None:
    yield from _body(body)
  unread = []
  for part in _others(message, body):
    name = " ".join((part.get_filename() or part.get_content_type()).split())
    name = name.encode(errors="replace").decode()
    try:
      inner = _attached(part, attachment, depth=depth)
    except ValueError as error:
      inner, name = None, f"{name} (not read: {error})"
    if inner:
      yield Block(f"Attached: {name}", 1)
      for block in inner:
        yield Block(block.text, block.level and min(block.level + 1, _LOWEST_HEADING))
    else:
      unread.append(f"Attached: {name}")
  yield Block("\n".join(unread))


def _others(
  part: MIMEPart, body: MIMEPart | None, *, is_alternative: bool = False
) -> Iterator[EmailMessage]:
  """Yields what is in a part, however deep in parts of parts, without the body in any of its forms.

  Args:
    is_alternative: Whether the part, or one around it, is one of several forms of the same.
  """
  if part is body:
    return
  if part.get_content_maintype() == "multipart" and part.is_multipart():
    is_alternative |= body is not None and part.get_content_subtype() == "alternative"
    for inner in part.iter_parts():
      yield from _others(cast(MIMEPart, inner), body, is_alternative=is_alternative)
  elif not is_alternative or part.is_attachment() or part.get_filename():
    yield cast(EmailMessage, part)


def _attached(
  part: EmailMessage, attachment: Callable[[bytes], list[Block] | None], *, depth: int
) -> list[Block] | None:
  """Returns the blocks of what is attached; None if it is of no kind that is read."""
  if part.get_content_type() == "message/rfc822":
    inner = cast(list[EmailMessage], part.get_payload())
    if depth >= _DEEPEST or not isinstance(inner, list) or not inner:
      return None
    subject = Block(_header(inner[0], "Subject"))
    return [subject, *_blocks(inner[0], attachment, depth=depth + 1)]
  found = attachment(_content(part))
  return _body(part) if found is None and part.get_content_maintype() == "text" else found


def _content(part: MIMEPart) -> bytes:
  return cast(bytes, part.get_payload(decode=True) or b"")


def _body(part: MIMEPart) -> list[Block]:
  content, charset = _content(part), part.get_content_charset("")
  if part.get_content_subtype() == "html":
    return html_page.read(html_page.decoded(content, charset=charset))[1]
  text = charsets.decoded(content, filter(None, [charset]))
  return [Block(paragraph) for paragraph in text.replace("\r", "").split("\n\n")]
