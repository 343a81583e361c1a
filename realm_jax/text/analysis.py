"""Terms of a text: what BM25 compares.

A term is a word in lower case without accents, stemmed by Snowball or, in a language that it does
not know, cut to its first five characters, which finds as much. What stands between spaces with
marks in it, such as `AT&T`, `C++`, `node.js` or `max_pool_size`, is a term as well, followed by
those of its words; its hyphens and apostrophes are left out, so that `e-mail` is found by `email`.
Where marks make other words, a term keeps them; texts then have the terms without marks as well,
for questions without any. English has Lucene's stop words; other languages have none, because rare
words outweigh them anyway. Scripts that put no spaces between words become characters and their
n-grams.
"""

import functools
import re
import threading
import unicodedata
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NamedTuple

import regex

from realm_jax.text import stems
from realm_jax.text.digit_groups import DigitGroups
from realm_jax.text.languages import (
  ALPHABETIC,
  IDEOGRAPHIC,
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
_MOST_WORDS = 1_000_000  # remembered with their terms, in all languages together
_COUNTED = 1_000  # of a cache, after which all are counted again
_LONGEST = 100  # characters of what is a term with its marks; longer addresses have words alone

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
_MARKS = dict(zip("‐‑‒–−’‘ʼ٫٬™℠♯“”", "-----'''.,  #  ", strict=True))
_MARK = re.compile(f"[{''.join(_MARKS)}]")
_DIGIT = regex.compile(r"[\p{Nd}--[0-9]]", regex.V1)
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
_CHUNK = re.compile(r"\S+")
_DIGITS = regex.compile(r"\p{N}+")
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
_EMOJI = r"[\p{Extended_Pictographic}--[©®™‼⁉ℹ]]"
# Words with marks between them, which end at brackets, quotes and what divides sentences. A mark
# before or after may belong to them, as in .NET, #tag, $5, C++, F# and 50%.
_TOKEN = regex.compile(
  rf"(?:(?<![.\p{{L}}\p{{M}}\p{{N}}])\.(?=\p{{L}})|[#@\p{{Sc}}])?{_WORD}"
  rf"(?:(?:(?<=\p{{N}}),(?=\p{{N}}{{1,3}}(?!\p{{N}}))|(?!\.\.|--)[^\s\p{{L}}\p{{N}}\p{{Pi}}\p{{Pf}}"
  rf"\p{{Ps}}\p{{Pe}}—―…,;\"!|<>\p{{So}}]{{1,3}}){_WORD})*+(?:\+{{1,2}}|[#%\p{{Sc}}])?"
  rf"|{_EMOJI}|\p{{Regional_Indicator}}{{2}}",
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
# A number with its unit, and a name with its number.
_WITH_UNIT = regex.compile(r"(\p{N}+)(\p{L}+)|(\p{L}{2,})(\p{N}+)")
_STOP_LINE = (  # which keep their words, as capitals do
  r"(?i)[^\w\n]*(?:(?:%s)(?:'(?:s|t|d|m|ll|re|ve))?(?!\w)[^\w\n]*)+"
)
_LONGEST_NAME = 200  # characters of such a line
_SHOUTED = 4  # words; in so many capitals alone no word is a name for them


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
    question = _spoken(question)
    analyses = (tuple(words.of_question(question)) for words in self._words.values())
    return [*map(list, dict.fromkeys(analyses))]

  def all_terms(self, text: str) -> frozenset[str]:
    """Returns the terms of a text in all languages."""
    text = _spoken(text)
    return frozenset(term for words in self._words.values() for term in words.terms(text))

  def marks(self, question: str, text: str) -> list[tuple[int, int]]:
    """Returns where a text has terms of a question, in order and apart."""
    question, found = _spoken(question), list[tuple[int, int]]()
    for words in self._words.values():
      found += words.marks(words.asked(question), text)
    apart: list[tuple[int, int]] = []
    for start, end in sorted(found):
      if apart and start < apart[-1][1]:
        start, end = apart[-1][0], max(end, apart.pop()[1])
      apart.append((start, end))
    return apart

  def idle(self, language: str) -> frozenset[str]:
    """Returns the terms, in each language, of words of one that tell nothing in a question."""
    idle = f"{_STOP_WORDS.get(language, '')} {_QUESTION_WORDS.get(language, '')}"
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
        if not len(self) % _COUNTED and sum(map(len, [*self._all.values()])) >= _MOST_WORDS:
          for cache in [*self._all.values()]:
            cache.clear()
        self[text] = found
    return found


class _Span(NamedTuple):
  """A term where a text has it; of a script without spaces it is a gram of characters."""

  start: int
  end: int
  term: str
  is_gram: bool = False


class Words:
  """Forms of the words of a language that are compared with each other."""

  def __init__(self, language: str):
    self._language = language
    self._stems = _Cache(
      stems.stemmer(language, stop_words=frozenset(_STOP_WORDS.get(language, "").split()))
    )
    self._chunks = _Cache(self._of_chunk)
    self._letters = _LETTERS_OF.get(language)
    self._clitics = _CLITICS.get(language)
    self._groups = DigitGroups(language)
    self._has_unmarked = language in stems.KEPT
    stop_words = _STOP_WORDS.get(language, "").replace(" ", "|")
    self._stop_line = re.compile(_STOP_LINE % stop_words) if stop_words else None

  def __reduce__(self):
    return Words, (self._language,)

  def terms(self, text: str) -> list[str]:
    """Returns the terms of a text in order."""
    text = self._prepared(text)
    if text.isascii():  # fewer different chunks
      text = text.replace(", ", " ").replace(". ", " ")
    terms = " ".join(map(self._chunks.__getitem__, text.split())).split()
    return sorted(terms, key=stems.is_unmarked) if self._has_unmarked else terms

  def of_question(self, question: str) -> list[str]:
    """Returns the terms that a question is compared by, in order."""
    terms = self.terms(question)
    return [*filter(self._is_asked(question), terms)] if self._has_unmarked else terms

  def _is_asked(self, question: str) -> Callable[[str], bool]:
    has_marks = any(character > "z" and character.isalpha() for character in question)
    return lambda term: stems.is_unmarked(term) != has_marks

  def asked(self, question: str) -> frozenset[str]:
    """Returns the terms that a text is marked by: of characters without spaces the longest."""
    spans = [span for chunk in self._prepared(question).split() for span in self._spans(chunk)]
    if self._has_unmarked:
      is_asked = self._is_asked(question)
      spans = [span for span in spans if is_asked(span.term)]
    grams = {(span.start, span.end) for span in spans if span.is_gram}
    return frozenset(
      span.term
      for span in spans
      if not span.is_gram or not {(span.start - 1, span.end), (span.start, span.end + 1)} & grams
    )

  def marks(self, asked: frozenset[str], text: str) -> list[tuple[int, int]]:
    """Returns where a text has some terms; they may overlap."""
    found = []
    for chunk in _CHUNK.finditer(self._prepared(text)):
      if not asked.isdisjoint(self._chunks[chunk[0]].split()):
        spans, first = self._spans(chunk[0]), chunk.start()
        found += [(first + a, first + b) for a, b, term, _ in spans if term in asked]
    return found

  def stem(self, word: str) -> str:
    """Returns what the inflections of a word share."""
    return self._stems[self._lower(_normalized(word))].partition(" ")[0] or word

  def _prepared(self, text: str) -> str:
    """Returns a text of the same length whose terms are those of what stands between spaces."""
    text = _with_plain_marks(text)
    text = self._groups.without_spaces(text)
    if self._stop_line:
      text = "\n".join(map(self._with_names, text.split("\n")))
    return text.translate(_SPACES) if text.isascii() else text

  def _with_names(self, line: str) -> str:
    is_name = self._stop_line and len(line) <= _LONGEST_NAME and self._stop_line.fullmatch(line)
    return line.upper() if is_name else line

  def _of_chunk(self, chunk: str) -> str:
    """Returns the terms of what stands between spaces, with spaces between them."""
    word = chunk.rstrip(_AFTER).lstrip(_BEFORE)
    if word.isascii() and word.isalpha() and (word.islower() or word[1:].islower()):  # as most are
      return self._stems[self._lower(word)]
    chunk = _normalized(chunk)
    for start, end in reversed(self._idle(chunk)):
      chunk = chunk[:start] + chunk[end:]
    return " ".join([span[2] for span in self._of_plain(chunk)])

  def _spans(self, chunk: str) -> list[_Span]:
    """Returns the terms of what stands between spaces, each where it is."""
    plain, origins = "", list[tuple[int, int]]()
    for character in _CHARACTER.finditer(chunk):
      plain += (normalized := _normalized(character[0]))
      origins += [character.span()] * len(normalized)
    if plain != _normalized(chunk):  # characters that change each other
      plain = _normalized(chunk)
      origins = [(0, len(chunk))] * len(plain)
    for start, end in reversed(self._idle(plain)):
      plain = plain[:start] + plain[end:]
      del origins[start:end]
    return [
      _Span(origins[a][0], origins[b - 1][1], one, is_gram)
      for a, b, terms, is_gram in self._of_plain(plain)
      for one in terms.split()
    ]

  def _idle(self, chunk: str) -> list[tuple[int, int]]:
    """Returns where a chunk has what is in no term, though it is between letters or digits."""
    spans = self._groups.separators(chunk)
    if self._clitics and "'" in chunk:
      spans += [clitic.span() for clitic in self._clitics.finditer(chunk)]
    return sorted(spans)

  def _of_plain(self, chunk: str) -> Iterator[tuple[int, int, str, bool]]:
    """Yields what `_Span` has, which takes longer to make."""
    stripped = chunk.rstrip(_AFTER)
    word = stripped.lstrip(_BEFORE)
    start = len(stripped) - len(word)
    parts = word.split("-")
    if all(map(_is_plain, parts)) and (word.isascii() or not _UNSPACED.search(word)):
      if len(parts) > 1 and not _is_of_words(parts):
        yield start, start + len(word), self._term("".join(parts)), False
      for part in parts:
        yield start, start + len(part), self._term(part), False
        if not (part.isalpha() or part.isdigit()):
          yield from self._apart(start, part)
        start += len(part) + 1
      return
    for run in _RUN.finditer(chunk):
      if lengths := _LENGTHS.get(run.lastgroup or ""):
        for a, b in _n_grams(run[0], lengths):
          yield run.start() + a, run.start() + b, run[0][a:b].lower(), True
      else:
        for token in _TOKEN.finditer(run[0]):
          for a, b, part in _of_token(token[0]):
            a, b = run.start() + token.start() + a, run.start() + token.start() + b
            is_acronym = chunk[b - 2 : b - 1] == "." == chunk[b : b + 1]  # whose last point is its
            yield a, b + is_acronym, self._term(part), False
            if not (part.isalpha() or part.isdigit()):
              yield from self._apart(a, part)

  def _apart(self, start: int, word: str) -> Iterator[tuple[int, int, str, bool]]:
    """Yields a number and its unit, or a name and its number, that are one word."""
    if both := _WITH_UNIT.fullmatch(word):
      for part in filter(None, both.groups()):
        yield start, start + len(part), self._term(part), False
        start += len(part)

  def _term(self, word: str) -> str:
    lower = self._lower(word)
    if word.isupper():  # no stop word but a name, as in vitamin A or an AND gate
      return self._stems[lower] or lower
    return self._stems[lower]

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


def _of_token(token: str, start: int = 0) -> Iterator[tuple[int, int, str]]:
  """Yields what stands between spaces with marks in it, if it has any, then its words, each with
  where it begins and ends."""
  pieces = _pieces(_DIVIDES, token)
  parts = [*_PART.finditer(token)]
  if len(pieces) > 1 or not parts or parts[0][0] != token:
    joined = token.translate(_JOINED)
    if _IS_WORD.fullmatch(joined):
      yield start, start + len(token), joined
    else:
      yield start, start + len(token), token[:_LONGEST]
      if len(pieces) < 2:  # .NET-based
        pieces = _pieces(_JOINS, token)
  if len(pieces) > 1:
    for first, piece in pieces:
      yield from _of_token(piece, start + first)
    return
  if len(parts) == 1 and len(token) > 1 == len(parts[0][0]) and parts[0][0].isalpha():
    return  # C++ is not C
  for part in parts:
    first, end = start + part.start(), start + part.end()
    yield first, end, part[0].replace(".", "") if part["acronym"] else part[0]
    inner = _HUMP.finditer(part[0]) if _IS_CAMEL.search(part[0]) else ()
    if part["number"]:
      numbers = [*_DIGITS.finditer(part[0])]
      inner = numbers if len(numbers) > 2 else ()
    for one in inner:
      yield first + one.start(), first + one.end(), one[0]


def _pieces(divider: regex.Pattern[str], token: str) -> list[tuple[int, str]]:
  """Returns the tokens between what divides one, each with where it begins."""
  start, pieces = 0, []
  for end, following in [*(gap.span() for gap in divider.finditer(token)), (len(token), 0)]:
    pieces += [(start + piece.start(), piece[0]) for piece in _TOKEN.finditer(token[start:end])]
    start = following
  return pieces


def _spoken(question: str) -> str:
  """Returns a question, in lower case if it is all capitals, which then mean nothing."""
  return question.lower() if question.isupper() and len(question.split()) >= _SHOUTED else question


def _normalized(text: str) -> str:
  if text.isascii():
    return text
  text = unicodedata.normalize("NFKC", _with_plain_marks(text))
  if text.isalpha() and "\u0640" not in text:
    return text
  return _DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), _OPTIONAL.sub("", text))


def _with_plain_marks(text: str) -> str:
  # Of a long text, five times as fast as `str.translate`.
  return text if text.isascii() else _MARK.sub(lambda mark: _MARKS[mark[0]], text)


def _n_grams(text: str, lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
  """Yields where the runs of some characters begin and end."""
  ends = [0, *(character.end() for character in _CHARACTER.finditer(text))]
  for length in lengths:
    yield from zip(ends, ends[length:], strict=False)
