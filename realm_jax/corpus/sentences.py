"""Sentence boundaries as byte offsets."""

import sentencex


def sentence_spans(text: str, *, language: str = "en") -> list[tuple[int, int]]:
  """Returns the byte offsets `(start, limit)` of sentences, surrounding white space excluded."""
  spans = []
  start = 0
  for segment in sentencex.segment(language, text):
    body = segment.strip()
    if body:
      begin = start + len(segment[: segment.index(body)].encode())
      spans.append((begin, begin + len(body.encode())))
    start += len(segment.encode())
  return spans
