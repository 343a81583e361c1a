"""Sentence boundaries as byte offsets."""

from collections.abc import Sequence

import sentencex


def sentence_spans(text: str) -> list[tuple[int, int]]:
  """Returns the byte offsets `(start, limit)` of sentences, surrounding white space excluded."""
  spans = []
  start = 0
  for segment in sentencex.segment("en", text):
    body = segment.strip()
    if body:
      begin = start + segment.index(body)
      spans.append((begin, begin + len(body)))
    start += len(segment)
  return to_byte_offsets(text, spans)


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
