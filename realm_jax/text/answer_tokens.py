"""What it means that a text has an answer: the tokens of the answer occur there in a row.

Letters, digits and marks in a row are a token, and any other character is one of its own, as in the
evaluation of Dense Passage Retrieval (Karpukhin et al. 2020). So is each character of a script
without spaces. Case, accents, compatibility forms and invisible characters make no difference.
"""

import functools
import re
import unicodedata

import regex

from realm_jax.text.scripts import UNSPACED

_TOKEN = regex.compile(
  rf"[{UNSPACED}]\p{{M}}*|[[\p{{L}}\p{{N}}\p{{M}}]--[{UNSPACED}]]+|[^\s\p{{Z}}\p{{C}}]", regex.V1
)
_ASCII_TOKEN = re.compile(r"[a-z0-9]+|[!-~]")  # the same for folded ASCII, in a third of the time
# Marks of one script, such as Thai vowels and the voice of kana, are no accents; Arabic's tatweel
# only widens a word.
_IGNORED = regex.compile(r"[\p{Cf}\u0640]|[\p{Mn}&&\p{Script=Inherited}--[\u3099\u309A]]", regex.V1)
_TEXTS_KEPT = 2**14


@functools.lru_cache(_TEXTS_KEPT)
def joined(text: str) -> str:
  """Returns the tokens of a text with a space before and after each."""
  folded = fold(text)
  return f" {' '.join((_ASCII_TOKEN if folded.isascii() else _TOKEN).findall(folded))} "


def contains(text: str, answer: str) -> bool:
  """Returns whether a text has an answer."""
  wanted = joined(answer)
  return not wanted.isspace() and wanted in joined(text)


def spans(text: str) -> list[tuple[int, int]]:
  """Returns the first character of each token of `joined` in the text, and the one after it."""
  origin = [place for place, character in enumerate(text) for _ in fold(character)]
  found = _TOKEN.finditer(fold(text))
  return [(origin[match.start()], origin[match.end() - 1] + 1) for match in found]


def fold(text: str) -> str:
  """Returns what is compared of each character: none, one or several."""
  return text.translate(_FOLDED)


class _Folded(dict):
  def __missing__(self, code: int) -> str:
    decomposed = unicodedata.normalize("NFKD", chr(code)).casefold()
    self[code] = _IGNORED.sub("", unicodedata.normalize("NFKD", decomposed))
    return self[code]


_FOLDED = _Folded()
