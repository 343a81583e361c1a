"""The text of a message of mail, with the names of what is attached."""

import email
import email.policy
from email.message import EmailMessage
from typing import cast

from realm_jax.corpus import html_page
from realm_jax.corpus.outline import Block

_HEADERS = ("From", "To", "Cc", "Date")


def read(content: bytes) -> tuple[str, list[Block]]:
  """Returns the subject and the blocks of a message."""
  message = cast(EmailMessage, email.message_from_bytes(content, policy=email.policy.default))
  if not message.keys():
    raise ValueError("it is no message of mail")
  subject = " ".join(str(message["Subject"] or "").split())
  headers = [f"{name}: {message[name]}" for name in _HEADERS if message[name]]
  attached = [part.get_filename() or part.get_content_type() for part in message.iter_attachments()]
  blocks = [Block("\n".join(headers)), *_body(message)]
  return subject, [*blocks, Block("\n".join(f"Attached: {name}" for name in attached))]


def _body(message: EmailMessage) -> list[Block]:
  part = message.get_body(("plain", "html"))
  if part is None:
    return []
  content = part.get_payload(decode=True) or b""
  if part.get_content_subtype() == "html":
    return html_page.read(html_page.decoded(bytes(content)))[1]
  try:
    text = part.get_content()
  except LookupError:
    text = bytes(content).decode("utf-8", "replace")
  return [Block(paragraph) for paragraph in str(text).replace("\r", "").split("\n\n")]
