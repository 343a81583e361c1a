"""Terms of a text: what BM25 and lexical encoders compare.

A term is a word in lower case without accents, stemmed by Snowball or, in a language that it does
not know, cut to its first five characters, which finds as much. What stands between spaces with
marks in it, such as `AT&T`, `C++`, `node.js` or `max_pool_size`, is a term as well, followed by
those of its words; its hyphens and apostrophes are left out, so that `e-mail` is found by `email`.
English has Lucene's stop words; other languages have none, because rare words outweigh them anyway.
Scripts that put no spaces between words become characters and their n-grams.
"""

import functools
import re
import threading
import unicodedata
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import regex
import Stemmer

from realm_jax.text.languages import (
  ALPHABETIC,
  IDEOGRAPHIC,
  is_of_latin_script,
  language_of,
  parse_tags,
)

_STOP_WORDS = {
  "en": "a an and are as at be but by for if in into is it no not of on or such that the their "
  "then there these they this to was will with",
}
# Words that make a text a question and say nothing about its subject.
_QUESTION_WORDS = {
  "en": "can could did do does had has have how many me much name should tell were what when where "
  "which who whom whose why would you been",
}
_SNOWBALL = {
  tag: stemmer
  for tag, _, stemmer in (
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
_MOST_WORDS = 1_000_000  # remembered with their terms, in all languages together
_LONGEST = 100  # characters of what is a term with its marks; longer addresses have words alone

_WITHOUT_ACCENT = str.maketrans(
  {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "ł": "l", "ı": "i"}
)
_ACCENT = regex.compile(
  r"(?<=[\p{Script=Latin}\p{Script=Greek}]\p{Mn}*)\p{Mn}|(?<=е)\u0308"  # Cyrillic ё
)
# Snowball and Unicode's own casing keep what only some writers of a language write.
_OPTIONAL = regex.compile(
  r"[\p{Script=Hebrew}&&\p{Mn}]|[\u0640\u064b-\u0652\u0670]"  # points, tatweel, vowel marks
  r"|[\u093c\u09bc\u0a3c\u0abc\u0b3c]|[\p{Cf}\ufe00-\ufe0f]",  # dots below letters, joiners
  regex.V1,
)
_PERSIAN_LETTERS = str.maketrans("يىك", "ییک")
_LETTERS_OF = {
  **dict.fromkeys(("fa", "ps", "sd", "ug", "ur", "ckb"), _PERSIAN_LETTERS),
  **dict.fromkeys(("az", "tr"), str.maketrans("Iİ", "ıi")),
}
# Marks of one meaning, and two that would become letters of the word before.
_MARKS = str.maketrans("‐‑‒–−’‘ʼ٫٬™℠♯“”", "-----'''.,  #  ")
_DIGIT = regex.compile(r"[\p{Nd}--[0-9]]", regex.V1)
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!,?\d)")
# What a language adds to a word by an apostrophe.
_ELISION = regex.compile(
  r"(?i)(?<![\p{L}\p{M}\p{N}])"
  r"(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu|all|dall|dell|nell|quell|sull|un)'(?=\p{L})"
)
_CLITICS = {
  "en": regex.compile(r"(?i)(?<=\p{L})'(?:s|t|d|m|ll|re|ve)(?![\p{L}\p{M}\p{N}'])"),
  **dict.fromkeys(("ca", "fr", "it"), _ELISION),
}

_SYLLABLES = IDEOGRAPHIC + r"\p{Script=Hangul}"
_CHARACTER = regex.compile(r"\X")
_RUN = regex.compile(
  rf"(?P<syllables>(?:[{_SYLLABLES}]\p{{M}}*)+)"
  rf"|(?P<unspaced>[[{ALPHABETIC}]&&[\p{{L}}\p{{M}}]]+)"
  rf"|(?P<spaced>[^\s{_SYLLABLES}{ALPHABETIC}]+|[{ALPHABETIC}&&\p{{N}}]+)",
  regex.V1,
)
_LENGTHS = {"syllables": (1, 2), "unspaced": (1, 2, 3)}  # characters of an n-gram
_UNSPACED = regex.compile(rf"[{_SYLLABLES}{ALPHABETIC}]")
_SPACES = str.maketrans('()[]{}<>"!;|', " " * 12)  # which are in no term
# Around a word. One that begins with a dot may be a name.
_BEFORE = "!\"'()*,-:;<=>?[]^_`{|}~“”„‘«»‹›¿¡–—…"
_AFTER = _BEFORE + ".।؟،؛"

_WORD = r"[\p{L}\p{N}][\p{L}\p{M}\p{N}]*+"
# Words with marks between them, which end at brackets, quotes and what divides sentences. A mark
# before or after may belong to them, as in .NET, #tag, $5, C++, F# and 50%.
_TOKEN = regex.compile(
  rf"(?:(?<![.\p{{L}}\p{{M}}\p{{N}}])\.(?=\p{{L}})|[#@\p{{Sc}}])?{_WORD}"
  rf"(?:(?:(?<=\p{{N}}),(?=\p{{N}}{{1,3}}(?!\p{{N}}))|(?!\.\.|--)[^\s\p{{L}}\p{{N}}\p{{Pi}}\p{{Pf}}"
  rf"\p{{Ps}}\p{{Pe}}—―…,;\"!|<>]{{1,3}}){_WORD})*+(?:\+{{1,2}}|[#%\p{{Sc}}])?",
  regex.V1,
)
_IS_WORD = regex.compile(_WORD)
_DIVIDES = regex.compile(r"[/\\:@=~*^?]+")  # a token into tokens
_JOINS = regex.compile("[-']+")
_PART = regex.compile(
  rf"(?P<number>\p{{N}}+(?:\.\p{{N}}+|,\p{{N}}{{1,3}}(?!\p{{N}}))+)"
  r"|(?P<acronym>(?<![\p{L}\p{M}\p{N}])\p{L}(?:\.\p{L})+(?![\p{L}\p{M}\p{N}]))"
  rf"|v(?=\p{{N}}+\.\p{{N}})|{_WORD}",
  regex.V1 | regex.IGNORECASE,
)
_HUMP = regex.compile(r"\p{Lu}?[\p{Ll}\p{M}]{2,}|\p{Lu}{2,}(?!\p{Ll})|\p{N}{2,}")
_IS_CAMEL = regex.compile(r"\p{Ll}\p{Lu}|\p{Lu}{2}\p{Ll}{2}")
_JOINED = str.maketrans("", "", "-'")


class Analyzer:
  """Splits texts into terms; safe to use from several threads.

  Args:
    languages: The languages of the texts. If there are several, that of each text is detected. A
      question is analyzed in all of them, because a few words do not tell theirs.
  """

  def __init__(self, languages: Sequence[str] = ("en",)):
    self.languages = parse_tags(languages)
    self._words = {language: _words(language) for language in self.languages}

  def __reduce__(self):
    return Analyzer, (self.languages,)

  def terms(self, text: str) -> list[str]:
    """Returns the terms of a text in order."""
    return self.analyze(text)[1]

  def analyze(self, text: str, *, language: str | None = None) -> tuple[str, list[str]]:
    """Returns the language of a text, which is detected if it is not given, and its terms."""
    language = language or language_of(text, among=self.languages)
    return language, self._words[language].terms(text)

  def in_each_language(self, question: str) -> list[list[str]]:
    """Returns the terms of a question in each language, those that are the same once."""
    analyses = (tuple(words.terms(question)) for words in self._words.values())
    return [*map(list, dict.fromkeys(analyses))]

  def idle(self, language: str, *, question_words: bool = True) -> frozenset[str]:
    """Returns the terms, in each language, of words of one that tell nothing in a question.

    Args:
      question_words: Whether to include words such as "who" and "many", which are known for
        English.
    """
    idle = _STOP_WORDS.get(language, "")
    if question_words:
      idle += " " + _QUESTION_WORDS.get(language, "")
    return frozenset(term for words in self._words.values() for term in words.terms(idle))


class _Cache(dict[str, str]):
  """What a function returned for each short text; safe to use from several threads."""

  _all: ClassVar = weakref.WeakValueDictionary[int, "_Cache"]()

  def __init__(self, function: Callable[[str], str]):
    super().__init__()
    self._function = function
    self._lock = threading.Lock()  # a stemmer serves one thread
    self._all[id(self)] = self

  def __missing__(self, text: str) -> str:
    with self._lock:
      found = self._function(text)
      if len(text) <= _LONGEST:
        caches = [*self._all.values()]
        if sum(map(len, caches)) >= _MOST_WORDS:
          for cache in caches:
            cache.clear()
        self[text] = found
    return found


class Words:
  """Forms of the words of a language that are compared with each other."""

  def __init__(self, language: str):
    self._language = language
    self._stems = _Cache(_stemmer(language))
    self._chunks = _Cache(self._of_chunk)
    self._letters = _LETTERS_OF.get(language)
    self._clitics = _CLITICS.get(language)

  def __reduce__(self):
    return Words, (self._language,)

  def terms(self, text: str) -> list[str]:
    """Returns the terms of a text in order."""
    if not text.isascii():
      text = text.translate(_MARKS)
    if text.isascii():  # fewer different chunks
      text = text.translate(_SPACES).replace(", ", " ").replace(". ", " ")
    return " ".join(map(self._chunks.__getitem__, text.split())).split()

  def stem(self, word: str) -> str:
    """Returns what the inflections of a word share."""
    return self._stems[self._lower(_normalized(word))].partition(" ")[0] or word

  def _of_chunk(self, chunk: str) -> str:
    """Returns the terms of what stands between spaces, with spaces between them."""
    word = chunk.rstrip(_AFTER).lstrip(_BEFORE)
    if word.isascii() and word.isalpha() and (word.islower() or word[1:].islower()):  # as most are
      return self._stems[self._lower(word)]
    chunk = _normalized(chunk)
    if "," in chunk:
      chunk = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), chunk)
    if self._clitics and "'" in chunk:
      chunk = self._clitics.sub("", chunk)
    word = chunk.rstrip(_AFTER).lstrip(_BEFORE)
    parts = word.split("-")
    if all(map(_is_plain, parts)) and (word.isascii() or not _UNSPACED.search(word)):
      whole = [] if len(parts) == 1 or _is_of_words(parts) else ["".join(parts)]
      return " ".join(map(self._term, whole + parts))
    terms: list[str] = []
    for run in _RUN.finditer(chunk):
      if lengths := _LENGTHS.get(run.lastgroup or ""):
        terms += _n_grams(run[0].lower(), lengths)
      else:
        terms += [self._term(w) for token in _TOKEN.findall(run[0]) for w in _of_token(token)]
    return " ".join(terms)

  def _term(self, word: str) -> str:
    # A capital alone is no stop word but a name, as in vitamin A.
    return word.lower() if len(word) == 1 and word.isupper() else self._stems[self._lower(word)]

  def _lower(self, text: str) -> str:
    if self._letters:
      text = text.translate(self._letters)
    lower = text.lower()
    return lower if lower.isascii() else lower.replace("i\u0307", "i")


_words = functools.cache(Words)


def _is_plain(word: str) -> bool:
  """Returns whether a word is letters and digits without a capital inside."""
  if not word.isalnum():
    return False
  return word[1:].islower() or word.isupper() or word.lower() == word


def _is_of_words(parts: Sequence[str]) -> bool:
  """Returns whether hyphens only join words, as in boundary-layer, but not in X-ray or re-entry."""
  return all(len(part) > 2 and part.isalpha() for part in parts)


def _of_token(token: str) -> Iterator[str]:
  """Yields what stands between spaces with marks in it, if it has any, then its words."""
  pieces = _pieces(_DIVIDES, token)
  parts = [*_PART.finditer(token)]
  if len(pieces) > 1 or not parts or parts[0][0] != token:
    joined = token.translate(_JOINED)
    if _IS_WORD.fullmatch(joined):
      yield joined
    else:
      yield token[:_LONGEST]
      if len(pieces) < 2:  # .NET-based
        pieces = _pieces(_JOINS, token)
  if len(pieces) > 1:
    for piece in pieces:
      yield from _of_token(piece)
    return
  if len(parts) == 1 and len(token) > 1 == len(parts[0][0]) and parts[0][0].isalpha():
    return  # C++ is not C
  for part in parts:
    yield part[0].replace(".", "") if part["acronym"] else part[0]
    if part["number"]:
      numbers = regex.findall(r"\p{N}+", part[0])
      yield from numbers if len(numbers) > 2 else ()
    elif _IS_CAMEL.search(part[0]):
      yield from _HUMP.findall(part[0])


def _pieces(divider: regex.Pattern[str], token: str) -> list[str]:
  return [inner for piece in divider.split(token) for inner in _TOKEN.findall(piece)]


def _normalized(text: str) -> str:
  if text.isascii():
    return text
  text = unicodedata.normalize("NFKC", text.translate(_MARKS))
  if text.isalpha() and "\u0640" not in text:
    return text
  return _DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), _OPTIONAL.sub("", text))


def _n_grams(text: str, lengths: Sequence[int]) -> Iterator[str]:
  characters = _CHARACTER.findall(text)
  for length in lengths:
    for i in range(len(characters) - length + 1):
      yield "".join(characters[i : i + length])


def _stemmer(language: str) -> Callable[[str], str]:
  """Returns a function from a word in lower case to its stem or stems; "" for a stop word."""
  stop_words = frozenset(_STOP_WORDS.get(language, "").split())
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
    if language == "en" or not snowball or word.isascii():
      return folded
    # Accents tell endings, and some who ask leave them out.
    return " ".join(dict.fromkeys([_without_accents(stem(word)), folded]))

  return stemmed


def _without_accents(word: str) -> str:
  if word.isascii():
    return word
  word = _ACCENT.sub("", unicodedata.normalize("NFD", word).translate(_WITHOUT_ACCENT))
  return unicodedata.normalize("NFC", word)


def _beginning(word: str) -> str:
  if not _LETTERS.fullmatch(word):
    return word
  limit = _BEGINNING
  while limit < len(word) and unicodedata.combining(word[limit]):
    limit += 1
  return word[:limit]
