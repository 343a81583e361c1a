"""Whether a predicted answer is right: exact match, F1 and regular expressions.

Two normalisations. "official" is that of the original's evaluation script (and of SQuAD's), with
its edges: accents are decomposed and stay, Unicode dashes and quotes stay, "the" equals "a", a
leading "á" loses its letter, and a regular expression need only match the beginning of the
prediction. "corrected" mends these.
"""

import functools
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

Normalization = Literal["official", "corrected"]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_LEADING_ARTICLE = re.compile(r"(a|an|the)\s+", re.IGNORECASE)
_REGEX_FLAGS = re.IGNORECASE | re.MULTILINE
_DELETE_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_official(text: str) -> str:
  """Decomposes, lower-cases, deletes ASCII punctuation, then articles, then extra white space."""
  text = unicodedata.normalize("NFD", text).lower().translate(_DELETE_ASCII_PUNCTUATION)
  return " ".join(_ARTICLES.sub(" ", text).split())


def normalize_corrected(text: str) -> str:
  """Does the same without accents, with all of Unicode's punctuation; keeps lone articles."""
  # Composed, so that "á" is no article with a mark.
  composed = unicodedata.normalize("NFKC", text).casefold().translate(_DELETE_ASCII_PUNCTUATION)
  words = "".join(c for c in composed if unicodedata.category(c)[0] != "P")
  words = " ".join(_ARTICLES.sub(" ", words).split()) or " ".join(words.split())
  return "".join(
    c for c in unicodedata.normalize("NFKD", words) if unicodedata.category(c) not in ("Mn", "Cf")
  )


_NORMALIZATIONS: Mapping[str, Callable[[str], str]] = {
  "official": normalize_official,
  "corrected": normalize_corrected,
}


def exact_match(
  prediction: str,
  answers: Sequence[str],
  *,
  regex: bool = False,
  normalization: Normalization = "official",
) -> bool:
  """Returns whether a prediction equals one of the answers after normalisation.

  Of a regular expression, the official rule asks that the raw prediction begins with a match, the
  corrected one that the whole prediction is a match, but for a leading article and white space and
  punctuation at its ends.
  """
  if regex:
    return any(_matches(prediction, answer, normalization) for answer in answers)
  normalize = _NORMALIZATIONS[normalization]
  return normalize(prediction) in map(normalize, answers)


def f1(prediction: str, answers: Sequence[str], *, normalization: Normalization = "official"):
  """Returns the best harmonic mean of precision and recall of words over the answers (SQuAD)."""
  normalize = _NORMALIZATIONS[normalization]
  return max(_f1(normalize(prediction).split(), normalize(answer).split()) for answer in answers)


def _f1(predicted: list[str], answer: list[str]) -> float:
  if not predicted or not answer:
    return float(predicted == answer)
  common = (Counter(predicted) & Counter(answer)).total()
  return 2 * common / (len(predicted) + len(answer))


@functools.lru_cache(maxsize=8192)
def compile_answer(pattern: str) -> re.Pattern:
  """Returns a regular-expression answer, which is indifferent to case."""
  return re.compile(pattern, _REGEX_FLAGS)


def _matches(prediction: str, pattern: str, normalization: Normalization) -> bool:
  compiled = compile_answer(pattern)
  if normalization == "official":
    return compiled.match(prediction) is not None
  bare = prediction.strip(string.punctuation + string.whitespace)
  return any(
    compiled.fullmatch(text)
    for text in (prediction.strip(), bare, _LEADING_ARTICLE.sub("", bare, 1))
  )
