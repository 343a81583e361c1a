"""Stems of words: what their inflections share, with or without the marks of their letters."""

import re
import unicodedata
from collections.abc import Callable, Collection, Mapping

import regex
import Stemmer

from realm_jax.text.languages import is_of_latin_script

_SNOWBALL = {
  tag: name
  for tag, _, name in (
    pair.partition(":")
    for pair in (
      "ar:arabic ca:catalan cs:czech da:danish de:german el:greek en:english eo:esperanto "
      "es:spanish et:estonian eu:basque fa:persian fi:finnish fr:french ga:irish hi:hindi "
      "hu:hungarian hy:armenian id:indonesian it:italian lt:lithuanian ne:nepali nl:dutch "
      "no:norwegian pl:polish pt:portuguese ro:romanian ru:russian sr:serbian st:sesotho "
      "sv:swedish ta:tamil tr:turkish yi:yiddish"
    ).split()
  )
}
_BEGINNING = 5  # characters of a word without a stemmer; marks that follow belong to the last
_LETTERS = regex.compile(r"[\p{L}\p{M}]+")
# Letters of a language whose marks make another word, of which texts have the terms without marks
# as well, after the others; None keeps all.
KEPT: Mapping[str, frozenset[str] | None] = {"tr": frozenset("çğıöşü"), "vi": None}
_UNMARKED = "~"  # before what a word is without marks; no other term begins with it
_WITHOUT_ACCENT = str.maketrans(
  {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ł": "l", "ı": "i"}
)
_ACCENT = regex.compile(
  r"(?<=[\p{Script=Latin}\p{Script=Greek}]\p{Mn}*)\p{Mn}|(?<=е)\u0308"  # Cyrillic ё
)
# Words of the English plural that Snowball leaves: pdfs, mp3s, gpus, but not gas, dress or 1990s.
_PLURAL = re.compile(
  r"\d*[b-df-hj-np-tv-z][b-df-hj-np-tv-z\d]*[b-df-hj-np-rtv-z\d]s|[b-df-hj-np-tv-z]{2,}[aeiou]s"
)


def stemmer(language: str, *, stop_words: Collection[str]) -> Callable[[str], str]:
  """Returns a function from a word in lower case to its stem or stems; "" for a stop word."""
  snowball = _SNOWBALL.get(language)
  stem = Stemmer.Stemmer(snowball, 0).stemWord if snowball else _beginning
  if not snowball and not is_of_latin_script(
    language
  ):  # whose Latin words are names and quotations
    stem = lambda word: word if word.isascii() else _beginning(word)  # noqa: E731

  def stemmed(word: str) -> str:
    if word in stop_words:
      return ""
    folded = stem(_without_accents(word))
    if language in KEPT:
      return f"{stem(_without_accents(word, kept=KEPT[language]))} {_UNMARKED}{folded}"
    if language == "en" and folded[-1:] == "s" and _PLURAL.fullmatch(folded):
      folded = folded[:-1]
    if language == "en" or not snowball or word.isascii():
      return folded
    # Accents tell endings, and some who ask leave them out.
    return " ".join(dict.fromkeys([_without_accents(stem(word)), folded]))

  return stemmed


def _without_accents(word: str, *, kept: frozenset[str] | None = frozenset()) -> str:
  if word.isascii() or kept is None:
    return word
  if kept:
    return "".join(letter if letter in kept else _without_accents(letter) for letter in word)
  word = _ACCENT.sub("", unicodedata.normalize("NFD", word).translate(_WITHOUT_ACCENT))
  return unicodedata.normalize("NFC", word)


def is_unmarked(term: str) -> bool:
  return term[0] == _UNMARKED


def _beginning(word: str) -> str:
  if not _LETTERS.fullmatch(word):
    return word
  limit = _BEGINNING
  while limit < len(word) and unicodedata.combining(word[limit]):
    limit += 1
  return word[:limit]
