"""What users ask: texts of a limited length, and examples of them."""

import dataclasses
from typing import Annotated

import pydantic

MAX_TEXT = 2000


def _encodable(text: str) -> str:
  try:
    text.encode()
  except UnicodeEncodeError:
    # JSON can contain half of a surrogate pair, UTF-8 cannot.
    raise ValueError("the text is not valid Unicode") from None
  return text


Text = Annotated[
  str, pydantic.StringConstraints(max_length=MAX_TEXT), pydantic.AfterValidator(_encodable)
]
Words = Annotated[
  str, pydantic.StringConstraints(max_length=8000), pydantic.AfterValidator(_encodable)
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
  """A query to try; `answer` is the correct answer, empty if unknown."""

  text: str
  answer: str = ""
