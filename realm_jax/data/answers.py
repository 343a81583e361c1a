"""Scores a predicted answer: exact match, F1 and regular expressions.

There are two normalisations. "official" is that of the original evaluation script (and of SQuAD's),
with its quirks: accents are decomposed but kept, Unicode dashes and quotes are kept, "the" equals
"a", a leading "á" loses its letter, and a regular expression need only match the beginning of the
prediction. "corrected" fixes these. Both are for English; answers in other languages are normalised
as MLQA does, in both cases.
"""

import contextlib
import functools
import re
import signal
import string
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import regex

from realm_jax.text import answer_tokens
from realm_jax.text import answers as language_answers

Normalization = Literal["official", "corrected"]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_LEADING_ARTICLE = re.compile(r"(a|an|the)\s+", re.IGNORECASE)
_REGEX_FLAGS = re.IGNORECASE | re.MULTILINE
_SECONDS_PER_MATCH = 2.0
_PUNCTUATION_OR_INVISIBLE = regex.compile(r"[\p{P}\p{Cf}]")
_DELETE_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_official(text: str) -> str:
  """Decomposes, lower-cases, and deletes ASCII punctuation, articles and extra white space."""
  text = unicodedata.normalize("NFD", text).lower().translate(_DELETE_ASCII_PUNCTUATION)
  return " ".join(_ARTICLES.sub(" ", text).split())


def normalize_corrected(text: str) -> str:
  """Does the same, but deletes accents and all Unicode punctuation and keeps lone articles.

  Invisible characters are deleted as well.
  """
  # Composed, so that "á" is not an article with a mark.
  composed = unicodedata.normalize("NFKC", text).casefold().translate(_DELETE_ASCII_PUNCTUATION)
  kept = _PUNCTUATION_OR_INVISIBLE.sub("", composed)
  words = " ".join(_ARTICLES.sub(" ", kept).split()) or " ".join(kept.split())
  decomposed = unicodedata.normalize("NFKD", words)
  return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


def normalizer(language: str, normalization: Normalization) -> Callable[[str], str]:
  """Returns the function that normalises answers in a language."""
  if language != "en":
    return functools.partial(language_answers.normalize, language=language)
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


def occurs(text: str, answers: Sequence[str], *, regex: bool = False) -> bool:
  """Returns whether a text has one of the answers, in whole tokens; see `text.answer_tokens`.

  Args:
    regex: Whether the answers are regular expressions, which may match anywhere.
  """
  if not regex:
    return any(answer_tokens.contains(text, answer) for answer in answers)
  with MatchingClock() as clock:
    for answer in answers:
      clock.begin(answer, text)
      if any(match.end() > match.start() for match in compile_answer(answer).finditer(text)):
        return True
  return False


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


@functools.lru_cache(maxsize=8192)
def compile_answer(pattern: str) -> re.Pattern:
  """Compiles a regular-expression answer, which ignores case."""
  return re.compile(pattern, _REGEX_FLAGS)


class MatchingClock(contextlib.AbstractContextManager["MatchingClock"]):
  """Ends a match of a regular expression that backtracks for seconds, with a `ValueError`.

  Use it around many matches, and call `begin` before each. It has a timer of the process's CPU time
  (`SIGVTALRM`), and does nothing outside the main thread, where Python delivers no signals.
  """

  def __enter__(self) -> "MatchingClock":
    self._matching: tuple[str, int] | None = None
    self._seen: tuple[tuple[str, int] | None, float] = (None, 0.0)
    self._active = threading.current_thread() is threading.main_thread()
    if self._active:
      self._handler = signal.signal(signal.SIGVTALRM, self._tick)
      signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS_PER_MATCH / 4, _SECONDS_PER_MATCH / 4)
    return self

  def __exit__(self, *_) -> None:
    if self._active:
      signal.setitimer(signal.ITIMER_VIRTUAL, 0)
      signal.signal(signal.SIGVTALRM, self._handler)

  def begin(self, pattern: str, text: str) -> None:
    """Begins a match; the previous one is over."""
    self._matching = (pattern, len(text))

  def _tick(self, *_) -> None:
    matching, since = self._seen
    if self._matching is not matching:
      self._seen = (self._matching, time.thread_time())
    elif matching is not None and time.thread_time() - since > _SECONDS_PER_MATCH:
      pattern, length = matching
      raise ValueError(
        f"the answer {pattern!r}, a regular expression, takes seconds on {length} characters; "
        "write it without repetitions inside repetitions"
      )


def _matches(prediction: str, pattern: str, normalization: Normalization) -> bool:
  compiled = compile_answer(pattern)
  bare = prediction.strip(string.punctuation + string.whitespace)
  with MatchingClock() as clock:
    clock.begin(pattern, prediction)
    if normalization == "official":
      return compiled.match(prediction) is not None
    return any(
      compiled.fullmatch(text)
      for text in (prediction.strip(), bare, _LEADING_ARTICLE.sub("", bare, 1))
    )
