"""Words of a text in any language.

A word is a run of letters, marks and digits, possibly with hyphens or apostrophes inside, or a
number. Scripts that put no spaces between words are divided by ICU's dictionaries.
"""

import regex
from icu4py import breakers

from realm_jax.text import scripts

_LETTER = rf"[[\p{{L}}\p{{M}}]--[{scripts.UNSPACED}]]"
_UNSPACED = rf"(?:[[{scripts.UNSPACED}]&&[\p{{L}}\p{{M}}]]\p{{M}}*)+"
_UNSPACED_RUN = regex.compile(_UNSPACED, regex.V1)
_RUN = regex.compile(
  rf"(?P<unspaced>{_UNSPACED})"
  rf"|{_LETTER}(?:['’-]?(?:{_LETTER}|\p{{Nd}}))*"
  r"|\p{Nd}+(?:[.,٫٬]\p{Nd}+)*",
  regex.V1,
)


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
