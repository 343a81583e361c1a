"""Scores a predicted answer, and tells whether a text has an answer.

There are two normalisations. "official" is that of the original evaluation script (and of SQuAD's),
with its quirks: accents are decomposed but kept, Unicode dashes and quotes are kept, "the" equals
"a", a leading "á" loses its letter, and a regular expression need only match the beginning of the
prediction. "corrected" fixes these. Both are for English. In other languages answers are normalised
as MLQA does (Lewis et al. 2020): case, punctuation and articles are deleted, and each character of
a script without spaces becomes a word. Unlike MLQA's script, this knows any language, takes
compatibility characters for equal, keeps what is nothing but articles or punctuation, and deletes
the Arabic article only at the beginning of a word.

A text has an answer if the tokens of the answer occur there in a row. Letters, digits and marks in
a row are a token, and any other character is one of its own, as in the evaluation of Dense Passage
Retrieval (Karpukhin et al. 2020). So is each character of a script without spaces. Case, accents,
compatibility forms and invisible characters make no difference.
"""

import functools
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import regex

from realm_jax.text.languages import UNSPACED

Normalization = Literal["official", "corrected"]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_LEADING_ARTICLE = re.compile(r"(a|an|the)\s+", re.IGNORECASE)
_INVISIBLE = regex.compile(r"\p{Cf}")
_DELETE_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)

_ARTICLES_OF = {
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
_CHARACTER = regex.compile(rf"[{UNSPACED}]\p{{M}}*")

_TOKEN = regex.compile(
  rf"[{UNSPACED}]\p{{M}}*|[[\p{{L}}\p{{N}}\p{{M}}]--[{UNSPACED}]]+|[^\s\p{{Z}}\p{{C}}]", regex.V1
)
_ASCII_TOKEN = re.compile(r"[a-z0-9]+|[!-~]")  # the same for folded ASCII, in a third of the time
# Marks of one script, such as Thai vowels and the voice of kana, are no accents; Arabic's tatweel
# only widens a word.
_IGNORED = regex.compile(r"[\p{Cf}\u0640]|[\p{Mn}&&\p{Script=Inherited}--[\u3099\u309A]]", regex.V1)
_TEXTS_KEPT = 2**14

_SECONDS_PER_MATCH = 2.0  # of the CPU time of the whole process, which all its threads use up


def normalize_official(text: str) -> str:
  """Decomposes, lower-cases, and deletes ASCII punctuation, articles and extra white space."""
  text = unicodedata.normalize("NFD", text).lower().translate(_DELETE_ASCII_PUNCTUATION)
  return " ".join(_ARTICLES.sub(" ", text).split())


def normalize_corrected(text: str) -> str:
  """Does the same, but deletes accents and all Unicode punctuation.

  Articles and punctuation that are all there is are kept. Invisible characters are deleted as well.
  """
  # Composed, so that "á" is not an article with a mark.
  composed = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text).casefold())
  kept = _PUNCTUATION.sub("", composed)
  words = next(filter(None, map(_spaced, (_ARTICLES.sub(" ", kept), kept, composed))), "")
  decomposed = unicodedata.normalize("NFKD", words)
  return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


def normalize_in(language: str, text: str) -> str:
  """Returns what correct answers in a language other than English have in common."""
  lower = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text).lower())
  articles = _ARTICLES_OF.get(language, r"(?!)")
  if language in _ELIDED:
    bare = _PUNCTUATION.sub("", regex.sub(articles, " ", lower))
  else:
    bare = regex.sub(articles, " ", _PUNCTUATION.sub("", lower))
  words = next(filter(None, map(_spaced, (bare, _PUNCTUATION.sub("", lower), lower))), "")
  return _spaced(_CHARACTER.sub(r" \g<0> ", words))


def _spaced(text: str) -> str:
  return " ".join(text.split())


def normalizer(language: str, normalization: Normalization) -> Callable[[str], str]:
  """Returns the function that normalises answers in a language."""
  if language != "en":
    return functools.partial(normalize_in, language)
  return normalize_official if normalization == "official" else normalize_corrected


def exact_match(
  prediction: str,
  answers: Sequence[str],
  *,
  regex: bool = False,
  normalization: Normalization = "official",
  language: str = "en",
) -> bool:
  """Returns whether a prediction equals one of the answers after normalisation.

  If the answers are regular expressions, the official rule requires that the raw prediction begins
  with a match. The corrected rule requires that the whole prediction matches, apart from a leading
  article and white space and punctuation at its ends.
  """
  if regex:
    return any(_matches(prediction, answer, normalization) for answer in answers)
  normalize = normalizer(language, normalization)
  return normalize(prediction) in map(normalize, answers)


def f1(prediction: str, answers: Sequence[str], *, language: str = "en") -> float:
  """Returns the best harmonic mean of precision and recall of words over the answers (SQuAD)."""
  normalize = normalizer(language, "official")
  predicted = normalize(prediction).split()
  return max(_f1(predicted, normalize(answer).split()) for answer in answers)


def _f1(predicted: list[str], answer: list[str]) -> float:
  if not predicted or not answer:
    return float(predicted == answer)
  common = (Counter(predicted) & Counter(answer)).total()
  return 2 * common / (len(predicted) + len(answer))


def occurs(text: str, answers: Sequence[str], *, regex: bool = False) -> bool:
  """Returns whether a text has one of the answers; regular expressions may match anywhere."""
  return any(pattern_spans(a, text) if regex else contains(text, a) for a in answers)


def contains(text: str, answer: str) -> bool:
  """Returns whether a text has an answer, in whole tokens."""
  wanted = joined_tokens(answer)
  return not wanted.isspace() and wanted in joined_tokens(text)


@functools.lru_cache(_TEXTS_KEPT)
def joined_tokens(text: str) -> str:
  """Returns the tokens of a text with a space before and after each."""
  text = folded(text)
  return f" {' '.join((_ASCII_TOKEN if text.isascii() else _TOKEN).findall(text))} "


def token_spans(text: str) -> list[tuple[int, int]]:
  """Returns the first character of each token in the text, and the one after it."""
  origin = [place for place, character in enumerate(text) for _ in folded(character)]
  found = _TOKEN.finditer(folded(text))
  return [(origin[match.start()], origin[match.end() - 1] + 1) for match in found]


def folded(text: str) -> str:
  """Returns what is compared of each character: none, one or several."""
  return text.translate(_FOLDED)


class _Folded(dict):
  def __missing__(self, code: int) -> str:
    decomposed = unicodedata.normalize("NFKD", chr(code)).casefold()
    self[code] = _IGNORED.sub("", unicodedata.normalize("NFKD", decomposed))
    return self[code]


_FOLDED = _Folded()


@functools.lru_cache(maxsize=8192)
def compile_answer(pattern: str) -> regex.Pattern[str]:
  """Compiles a regular-expression answer in the syntax of `re`, which ignores case.

  `regex` does the matching, because it can give up in time; what only it knows, such as the fuzzy
  `a{e}`, means what it means there.

  Raises:
    ValueError: If it is not a regular expression to both.
  """
  try:
    re.compile(pattern)
    return regex.compile(pattern, regex.IGNORECASE | regex.MULTILINE)
  except (re.error, regex.error) as error:
    raise ValueError(f"the answer {pattern!r} is not a regular expression: {error}") from error


def pattern_spans(pattern: str, text: str, *, written: str | None = None) -> list[tuple[int, int]]:
  """Returns where a regular-expression answer matches some of a text.

  Args:
    written: What an error quotes; None quotes the pattern.

  Raises:
    ValueError: If that takes seconds.
  """
  search = compile_answer(pattern).finditer
  matches = _in_time(lambda seconds: list(search(text, timeout=seconds)), written or pattern, text)
  return [match.span() for match in matches if match.end() > match.start()]


def _matches(prediction: str, pattern: str, normalization: Normalization) -> bool:
  compiled = compile_answer(pattern)
  if normalization == "official":
    match, texts = compiled.match, [prediction]
  else:
    bare = prediction.strip(string.punctuation + string.whitespace)
    match, texts = compiled.fullmatch, [prediction.strip(), bare, _LEADING_ARTICLE.sub("", bare, 1)]
  return any(
    _in_time(lambda seconds, t=text: match(t, timeout=seconds), pattern, text) for text in texts
  )


def _in_time(match: Callable, pattern: str, text: str):
  try:
    return match(_SECONDS_PER_MATCH)
  except TimeoutError as error:
    raise ValueError(
      f"the answer {pattern!r}, a regular expression, takes seconds on {len(text)} characters; "
      "write it without repetitions inside repetitions"
    ) from error
