"""Sentences and words of a text in any language.

A word is a run of letters, marks and digits, possibly with hyphens or apostrophes inside, or a
number. Scripts that put no spaces between words are divided by ICU's dictionaries.
"""

import re
from collections.abc import Sequence

import regex
import sentencex
from icu4py import breakers

from realm_jax.text.languages import UNSPACED

# Thai and Lao have no full stop; they put a space between sentences and clauses.
_UNPUNCTUATED = ("lo", "th")
_CLAUSES = re.compile(r".{40,}?\s+|.+", re.DOTALL)

_LETTER = rf"[[\p{{L}}\p{{M}}]--[{UNSPACED}]]"
_UNSPACED = rf"(?:[[{UNSPACED}]&&[\p{{L}}\p{{M}}]]\p{{M}}*)+"
_UNSPACED_RUN = regex.compile(_UNSPACED, regex.V1)
_RUN = regex.compile(
  rf"(?P<unspaced>{_UNSPACED})"
  rf"|{_LETTER}(?:['’-]?(?:{_LETTER}|\p{{Nd}}))*"
  r"|\p{Nd}+(?:[.,٫٬]\p{Nd}+)*",
  regex.V1,
)


def sentence_spans(text: str, *, language: str = "en") -> list[tuple[int, int]]:
  """Returns the byte offsets `(start, limit)` of sentences, surrounding white space excluded."""
  is_unpunctuated = language in _UNPUNCTUATED
  spans = []
  start = 0
  for segment in _CLAUSES.findall(text) if is_unpunctuated else sentencex.segment(language, text):
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


def word_spans(text: str) -> list[tuple[int, int]]:
  """Returns the character offsets `(start, limit)` of the words."""
  spans: list[tuple[int, int]] = []
  for run in _RUN.finditer(text):
    if run.lastgroup == "unspaced":
      spans += [(run.start() + a, run.start() + b) for a, b in segments(run[0])]
    else:
      spans.append(run.span())
  return spans


def spaced(text: str) -> str:
  """Returns a text with spaces between all words, also where its script has none."""
  if not _UNSPACED_RUN.search(text):
    return text
  return _UNSPACED_RUN.sub(
    lambda run: " " + " ".join(run[0][a:b] for a, b in segments(run[0])) + " ", text
  )


def segments(run: str) -> list[tuple[int, int]]:
  """Returns the words of a text without spaces, as offsets that leave nothing out."""
  # The dictionary depends on the script; a language chooses between rules for other characters.
  return list(breakers.WordBreaker(run, "en").segments())
