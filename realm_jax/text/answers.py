"""Normalises answers in languages other than English, as MLQA does (Lewis et al. 2020).

Case, punctuation and articles are deleted, and each character of a script without spaces becomes a
word. Unlike MLQA's script, this knows any language, takes compatibility characters for equal, keeps
what is nothing but articles, and deletes the Arabic article only at the beginning of a word.
"""

import string
import unicodedata

import regex

from realm_jax.text import scripts

_ARTICLES = {
  "ar": r"\bال(?=\p{L}{2})",
  "de": r"\b(?:ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
  "es": r"\b(?:un|una|unos|unas|el|la|los|las)\b",
  "fr": r"\b(?:l['’]|(?:le|la|les|un|une|des)\b)",
  "it": r"\b(?:(?:l|un)['’]|(?:il|lo|la|i|gli|le|un|uno|una)\b)",
  "nl": r"\b(?:de|het|een)\b",
  "pt": r"\b(?:o|a|os|as|um|uma|uns|umas)\b",
  "vi": r"\b(?:của|là|cái|chiếc|những)\b",
}
_ELIDED = ("fr", "it")  # whose articles end in an apostrophe, which is punctuation
_PUNCTUATION = regex.compile(rf"[\p{{P}}\p{{Cf}}{regex.escape(string.punctuation)}]")
_CHARACTER = regex.compile(rf"[{scripts.UNSPACED}]\p{{M}}*")


def normalize(text: str, language: str) -> str:
  """Returns what correct answers have in common: words in lower case, with single spaces."""
  lower = unicodedata.normalize("NFKC", text).lower()
  articles = _ARTICLES.get(language, r"(?!)")
  if language in _ELIDED:
    bare = _PUNCTUATION.sub("", regex.sub(articles, " ", lower))
  else:
    bare = regex.sub(articles, " ", _PUNCTUATION.sub("", lower))
  if not bare.strip():
    bare = _PUNCTUATION.sub("", lower)
  return " ".join(_CHARACTER.sub(r" \g<0> ", bare).split())
