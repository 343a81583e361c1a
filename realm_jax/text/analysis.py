"""Terms of a text: what BM25 and lexical encoders compare.

In English they are those of bm25s: lower-cased words of two or more characters, without the stop
words of Lucene, stemmed. In other languages there are no stop words, because rare words outweigh
them anyway. Words are stemmed by Snowball or, in a language that it does not know, cut to their
first five characters, which finds as much. Scripts that put no spaces between words become
characters and their n-grams.
"""

import re
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence

import regex
import Stemmer

from realm_jax.text import detection, scripts, tags

_ENGLISH_WORD = re.compile(r"\b\w\w+\b")
_ENGLISH_STOP_WORDS = frozenset(
  "a an and are as at be but by for if in into is it no not of on or such that the their then "
  "there these they this to was will with".split()
)
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
      "ar:arabic ca:catalan cs:czech da:danish de:german el:greek eo:esperanto es:spanish "
      "et:estonian eu:basque fa:persian fi:finnish fr:french ga:irish hi:hindi hu:hungarian "
      "hy:armenian id:indonesian it:italian lt:lithuanian ne:nepali nl:dutch no:norwegian "
      "pl:polish pt:portuguese ro:romanian ru:russian sr:serbian st:sesotho sv:swedish ta:tamil "
      "tr:turkish yi:yiddish"
    ).split()
  )
}
_BEGINNING = 5  # characters of a word without a stemmer; marks that follow belong to the last
_MOST_WORDS = 1_000_000  # remembered with their stems

# Snowball and Unicode's own casing keep what only some writers of a language write.
_OPTIONAL = regex.compile(
  r"[\p{Script=Hebrew}&&\p{Mn}]|[\u0640\u064b-\u0652\u0670]"  # points, tatweel, vowel marks
  r"|[\u093c\u09bc\u0a3c\u0abc\u0b3c]|\p{Cf}",  # dots below letters, joiners
  regex.V1,
)
_PERSIAN_LETTERS = str.maketrans("يىك", "ییک")
_TURKISH_LETTERS = str.maketrans("Iİ", "ıi")
_LETTERS_OF = {
  **dict.fromkeys(("fa", "ps", "sd", "ug", "ur", "ckb"), _PERSIAN_LETTERS),
  **dict.fromkeys(("az", "tr"), _TURKISH_LETTERS),
}

_SYLLABLES = scripts.IDEOGRAPHIC + r"\p{Script=Hangul}"
_CHARACTER = regex.compile(r"\X")
_RUN = regex.compile(
  rf"(?P<syllables>(?:[{_SYLLABLES}]\p{{M}}*)+)|(?P<unspaced>[[{scripts.ALPHABETIC}]&&[\p{{L}}\p{{M}}]]+)"
  rf"|(?P<word>[[\p{{L}}\p{{M}}\p{{N}}]--[{_SYLLABLES}{scripts.ALPHABETIC}]]+|\p{{N}}+)",
  regex.V1,
)
_LENGTHS = {"syllables": (1, 2), "unspaced": (1, 2, 3)}  # characters of an n-gram
_NEEDS_RUNS = regex.compile(rf"[{_SYLLABLES}{scripts.ALPHABETIC}]")
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")


class Analyzer:
  """Splits texts into terms; safe to use from several threads.

  Args:
    languages: The languages of the texts. If there are several, that of each text is detected.
  """

  def __init__(self, languages: Sequence[str] = ("en",)):
    self.languages = tags.parse_all(languages)
    self._analyses = {language: _analysis(language) for language in self.languages}

  def __reduce__(self):
    return Analyzer, (self.languages,)

  def terms(self, text: str) -> list[str]:
    """Returns the terms of a text in order."""
    return self.analyze(text)[1]

  def analyze(self, text: str) -> tuple[str, list[str]]:
    """Returns the language of a text, and its terms in order."""
    language = detection.language_of(text, among=self.languages)
    return language, self._analyses[language](text)

  def question_words(self, language: str) -> frozenset[str]:
    """Returns the terms of question words; empty if those of the language are not known."""
    return frozenset(self._analyses[language](_QUESTION_WORDS.get(language, "")))


class _Stems(dict):
  """The stem of each word seen; None for words that are no terms."""

  def __init__(self, stem: Callable[[str], str], stop_words: frozenset[str] = frozenset()):
    super().__init__()
    self._stem, self._stop_words = stem, stop_words
    self._lock = threading.Lock()  # a stemmer serves one thread

  def __missing__(self, word: str) -> str | None:
    with self._lock:
      if len(self) >= _MOST_WORDS:
        self.clear()
      self[word] = stem = None if word in self._stop_words else self._stem(word)
    return stem


def _analysis(language: str) -> Callable[[str], list[str]]:
  return _english_terms() if language == "en" else Words(language).terms


def _english_terms() -> Callable[[str], list[str]]:
  stems = _Stems(Stemmer.Stemmer("english", 0).stemWord, _ENGLISH_STOP_WORDS)

  def terms(text: str) -> list[str]:
    found = map(stems.__getitem__, _ENGLISH_WORD.findall(text.lower()))
    return [stem for stem in found if stem]

  return terms


class Words:
  """Forms of the words of a language that are compared with each other."""

  def __init__(self, language: str):
    snowball = _SNOWBALL.get(language)
    self._language = language
    self._stems = _Stems(Stemmer.Stemmer(snowball, 0).stemWord if snowball else _beginning)
    self._letters = _LETTERS_OF.get(language, {})

  def __reduce__(self):
    return Words, (self._language,)

  def terms(self, text: str) -> list[str]:
    """Returns the terms of a text in order."""
    folded = self._folded(text)
    if not _NEEDS_RUNS.search(folded):
      return [stem for stem in map(self._stems.__getitem__, _WORD.findall(folded)) if stem]
    return [term for run in _RUN.finditer(folded) for term in _of_run(run, self._stems)]

  def stem(self, word: str) -> str:
    """Returns what the inflections of a word share."""
    return self._stems[self._folded(word)] or word

  def _folded(self, text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).translate(self._letters).lower()
    return _OPTIONAL.sub("", folded)


def _of_run(run: regex.Match, stems: _Stems) -> Iterator[str]:
  lengths = _LENGTHS.get(run.lastgroup or "")
  if lengths is None:
    if stem := stems[run[0]]:
      yield stem
    return
  characters = _CHARACTER.findall(run[0])
  for length in lengths:
    for i in range(len(characters) - length + 1):
      yield "".join(characters[i : i + length])


def _beginning(word: str) -> str:
  if any(character.isdigit() for character in word):
    return word
  limit = _BEGINNING
  while limit < len(word) and unicodedata.combining(word[limit]):
    limit += 1
  return word[:limit]
