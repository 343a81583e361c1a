"""Languages by BCP 47 tag, which one a text is written in, and scripts without spaces.

A language is named by its primary subtag: `de-CH` is `de`, and `zh-Hant` is `zh`. `und`, the tag of
an undetermined language, stands for rules that need no knowledge of the language.
"""

import functools
import math
import re
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# Scripts that put no spaces between words, as the inside of a set in a regular expression. In the
# first a character is a syllable or a word, in the others less than a syllable.
IDEOGRAPHIC = r"\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Bopomofo}ー"
ALPHABETIC = r"\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}"
UNSPACED = IDEOGRAPHIC + ALPHABETIC

UNDETERMINED = "und"
_TAG = re.compile(r"[a-z]{2,3}(-[a-z0-9]{1,8})*")
# Varieties that are treated like the language of which most text is written.
_VARIETIES = {
  **dict.fromkeys(("cmn", "wuu", "yue"), "zh"),
  **dict.fromkeys(("ary", "arz"), "ar"),
  **dict.fromkeys(("nb", "nn"), "no"),
  "in": "id",
  "iw": "he",
  "ji": "yi",
  "pcm": "en",
}

_CHARACTERS = 500  # of a text; more would not change the answer
# What has less of a corpus is names, quotations and mistakes.
_SHARE_OF_A_LANGUAGE = 0.02
# Logarithms of how much more probable the language of a text is than any other. Few words are no
# evidence: of English titles with ten more words, other languages are 5 for 4 %, 20 for 1 %, and 60
# for none.
_LIKELY, _SURE, _CLEAR = _GRADES = 5, 20, 60
_EVIDENCE = 10.0  # a text alone is English unless another language is exp(10) times as likely
# Words that are frequent in English alone: a text with many is recognised in no time.
_ENGLISH_WORD = re.compile(r"\b(?:the|and|of|that|with|which|from|by)\b")
_FEWEST_ENGLISH, _SHARE_OF_ENGLISH = 4, 0.08
_NO_LANGUAGE = "zxx"  # numbers, codes and the like
# Languages that are not mistaken for those of another line, nor for any in Latin letters.
_OF_SCRIPTS = {
  tag: script
  for script in (
    "be bg kk ky mk mn ru tg tt uk|ar ckb fa ps sd sdh ug ur|hi mr ne sa|he hbo yi|el grc|as bn"
    "|am|dz|gu|hy|ja|ka|km|kn|ko|lo|ml|my|or|pa|si|ta|te|th|zh"
  ).split("|")
  for tag in script.split()
}


def parse_tag(tag: str) -> str:
  """Returns the language of a tag.

  Raises:
    ValueError: If the tag is malformed.
  """
  lower = tag.strip().lower()
  if not _TAG.fullmatch(lower):
    raise ValueError(f"language {tag!r} is no BCP 47 tag; give one such as de, pt-BR or zh-Hant")
  primary = lower.partition("-")[0]
  return _VARIETIES.get(primary, primary)


def parse_tags(tags: Iterable[str]) -> tuple[str, ...]:
  """Returns the languages of some tags, each once, in alphabetical order."""
  return tuple(sorted({parse_tag(tag) for tag in tags}))


def choose_languages(tags: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
  """Returns the languages of some tags, or for "auto" those of a sample of texts.

  Raises:
    ValueError: If a tag is malformed, or "auto" is not alone.
  """
  if "auto" not in tags:
    return parse_tags(tags)
  if len(tags) > 1:
    raise ValueError(f"language={','.join(tags)}: give auto alone, or all languages")
  return languages_of(texts)


class Recognized(NamedTuple):
  """What a text alone tells of its language.

  Attributes:
    language: The most probable of the candidates.
    nats: How much more probable it is than any other, as a logarithm that is rounded down to one of
      few values.
  """

  language: str
  nats: int


class Evidence:
  """What the texts of a corpus tell of its languages, each by itself, in any order."""

  def __init__(self):
    self._texts, self._bytes = Counter[Recognized](), Counter[Recognized]()

  def add(self, found: Recognized, *, size: int, texts: int = 1) -> None:
    """Adds texts of so many bytes together."""
    self._texts[found] += texts
    self._bytes[found] += size

  def mixture(self) -> "Mixture":
    """Returns the languages of the corpus.

    The main one is that of most texts, English if they tell little. Others have a notable share of
    what is written in their script, and enough text that is surely theirs.
    """
    votes, nats, sure = Counter[str](), Counter[str](), Counter[str]()
    clear, written = Counter[str](), Counter[str]()  # bytes of languages, and of scripts
    for found, texts in self._texts.items():
      written[_script(found.language)] += self._bytes[found]
      votes[found.language] += texts * (found.nats >= _LIKELY)
      nats[found.language] += texts * found.nats
      if found.nats >= _SURE:
        sure[found.language] += texts * found.nats
        clear[found.language] += self._bytes[found]
    main = max(sorted(votes), key=lambda tag: (votes[tag], tag == "en"), default="en")
    main = main if nats[main] >= _SURE else "en"
    others = (
      language
      for language, size in clear.items()
      if size >= _SHARE_OF_A_LANGUAGE * written[_script(language)]
      # No text in another script than the main language is one of it.
      and sure[language] >= (_CLEAR if _script(language) == _script(main) else _SURE)
    )
    return Mixture(main, frozenset((main, *others)))


class Mixture(NamedTuple):
  """The languages of a corpus, and the main one, in which what tells little is read."""

  main: str
  languages: frozenset[str]

  def language_of(self, found: Recognized) -> str:
    """Returns the language that a text of the corpus is read in."""
    is_likely = found.language in self.languages and found.nats >= _LIKELY
    return found.language if is_likely else self.main


def recognize(text: str, *, among: Sequence[str] = ()) -> Recognized:
  """Returns the most probable language of a text, of the candidates or of all that are known."""
  if len(among) == 1:
    return Recognized(among[0], _CLEAR)
  if (not among or "en" in among) and _is_plainly_english(text[:_CHARACTERS]):
    return Recognized("en", _CLEAR)
  best, *others = _ranked(text, among) or [(among[0], 0.0)]
  nats = best[1] - others[0][1] if others else float(_CLEAR)
  if not is_of_latin_script(best[0]) and _is_latin(text[:_CHARACTERS]):
    nats = 0.0  # it names a word of that language
  return Recognized(best[0], max((grade for grade in _GRADES if nats >= grade), default=0))


def language_of(text: str, *, among: Sequence[str] = (), main: str = "") -> str:
  """Returns the most probable language of a text, of the candidates or of all that are known.

  Args:
    main: The candidate that texts are of which tell little; of all languages, English.
  """
  if len(among) == 1:
    return among[0]
  if (not among or "en" in among) and _is_plainly_english(text[:_CHARACTERS]):
    return "en"
  ranked = _ranked(text, among)
  if not ranked:
    return main or among[0]
  main = main or ("" if among else "en")
  best, log_likelihood = ranked[0]
  is_clear = log_likelihood - dict(ranked).get(main, -math.inf) > _EVIDENCE
  return best if is_clear else main


def _ranked(text: str, among: Sequence[str]) -> list[tuple[str, float]]:
  """Returns candidates, or all languages, and their log likelihoods, the most probable first."""
  found: dict[str, float] = {}
  for label, log_likelihood in _identifier().rank(text[:_CHARACTERS]):  # the best first
    language = parse_tag(label)
    if label != _NO_LANGUAGE and (not among or language in among):
      found.setdefault(language, log_likelihood)
  return [*found.items()]


def is_of_latin_script(language: str) -> bool:
  """Returns whether a language is written in Latin letters, as far as is known."""
  return language not in _OF_SCRIPTS


def _script(language: str) -> str:
  return _OF_SCRIPTS.get(language, "")


def _is_latin(text: str) -> bool:
  """Returns whether most letters are among those that Western languages are written in."""
  letters = [*filter(str.isalpha, text)]
  return 2 * sum(letter < "\u0250" for letter in letters) > len(letters)


def _is_plainly_english(text: str) -> bool:
  count = len(_ENGLISH_WORD.findall(text))
  return count >= max(_FEWEST_ENGLISH, _SHARE_OF_ENGLISH * text.count(" "))


def languages_of(texts: Iterable[str]) -> tuple[str, ...]:
  """Returns the languages of a corpus, sorted; none of no texts."""
  evidence, text = Evidence(), None
  for text in texts:
    evidence.add(recognize(text), size=len(text.encode()))
  return () if text is None else tuple(sorted(evidence.mixture().languages))


_loading = threading.Lock()  # or each of the first threads would load it


def _identifier():
  with _loading:
    return _loaded_identifier()


@functools.cache
def _loaded_identifier():
  from py3langid import langid

  return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)
