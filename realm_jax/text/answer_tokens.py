"""What it means that a text has an answer: the tokens of the answer occur there in a row.

Letters, digits and marks in a row are a token, and any other character is one of its own, as in the
evaluation of Dense Passage Retrieval (Karpukhin et al. 2020). So is each character of a script
without spaces. Case, accents, compatibility forms and invisible characters make no difference.
"""

import functools
import unicodedata

import regex

from realm_jax.text.scripts import UNSPACED

_TOKEN = regex.compile(
  rf"[{UNSPACED}]\p{{M}}*|[[\p{{L}}\p{{N}}\p{{M}}]--[{UNSPACED}]]+|[^\s\p{{Z}}\p{{C}}]", regex.V1
)
# Marks of one script, such as Thai vowels and the voice of kana, are no accents; Arabic's tatweel
# only widens a word.
_IGNORED = regex.compile(r"[\p{Cf}\u0640]|[\p{Mn}&&\p{Script=Inherited}--[\u3099\u309A]]", regex.V1)
_TEXTS_KEPT = 2**14


@functools.lru_cache(_TEXTS_KEPT)
def joined(text: str) -> str:
  """Returns the tokens of a text with a space before and after each."""
  return f" {' '.join(_TOKEN.findall(''.join(map(fold, text))))} "


def contains(text: str, answer: str) -> bool:
  """Returns whether a text has an answer."""
  wanted = joined(answer)
  return not wanted.isspace() and wanted in joined(text)


def spans(text: str) -> list[tuple[int, int]]:
  """Returns the first character of each token of `joined` in the text, and the one after it."""
  folded = [*map(fold, text)]
  origin = [place for place, characters in enumerate(folded) for _ in characters]
  found = _TOKEN.finditer("".join(folded))
  return [(origin[match.start()], origin[match.end() - 1] + 1) for match in found]


@functools.cache
def fold(character: str) -> str:
  """Returns what is compared of a character: none, one or several."""
  decomposed = unicodedata.normalize("NFKD", character).casefold()
  return _IGNORED.sub("", unicodedata.normalize("NFKD", decomposed))
