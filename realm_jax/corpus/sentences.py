"""Sentence boundaries as byte offsets."""

import re
from collections.abc import Iterable, Sequence

import sentencex

# Thai and Lao have no full stop; they put a space between sentences and clauses.
_UNPUNCTUATED = ("lo", "th")
_CLAUSES = re.compile(r".{40,}?\s+|.+", re.DOTALL)


def sentence_spans(text: str, *, language: str = "en") -> list[tuple[int, int]]:
  """Returns the byte offsets `(start, limit)` of sentences, surrounding white space excluded."""
  spans = []
  start = 0
  for segment in _segments(text, language):
    body = segment.strip()
    if body:
      begin = start + segment.index(body)
      spans.append((begin, begin + len(body)))
    start += len(segment)
  return to_byte_offsets(text, spans)


def _segments(text: str, language: str) -> Iterable[str]:
  return _CLAUSES.findall(text) if language in _UNPUNCTUATED else sentencex.segment(language, text)


def to_byte_offsets(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
  """Converts ascending character offsets to UTF-8 byte offsets."""
  if text.isascii():
    return list(spans)
  offsets = []
  character = byte = 0
  for start, limit in spans:
    begin = byte + len(text[character:start].encode())
    end = begin + len(text[start:limit].encode())
    offsets.append((begin, end))
    character, byte = limit, end
  return offsets
