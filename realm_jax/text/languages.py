"""Languages by BCP 47 tag, which one a text is written in, and scripts without spaces.

A language is named by its primary subtag: `de-CH` is `de`, and `zh-Hant` is `zh`. `und`, the tag of
an undetermined language, stands for rules that need no knowledge of the language.
"""

import functools
import re
import threading
from collections import Counter
from collections.abc import Iterable, Sequence

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
# A text is English unless another language is exp(10) times as likely: few words are no evidence.
_EVIDENCE = 10.0
# Words that are frequent in English alone: a text with many is recognised in no time.
_ENGLISH_WORD = re.compile(r"\b(?:the|and|of|that|with|which|from|by)\b")
_FEWEST_ENGLISH, _SHARE_OF_ENGLISH = 4, 0.08
_NO_LANGUAGE = "zxx"  # numbers, codes and the like


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


def language_of(text: str, *, among: Sequence[str] = ()) -> str:
  """Returns the most probable language of a text, of the candidates or of all that are known."""
  if len(among) == 1:
    return among[0]
  text = text[:_CHARACTERS]
  if (not among or "en" in among) and _is_plainly_english(text):
    return "en"
  log_likelihoods = dict(_identifier().rank(text))
  log_likelihoods.pop(_NO_LANGUAGE)
  if among:
    candidates = [label for label in log_likelihoods if parse_tag(label) in among]
    return parse_tag(max(candidates, key=log_likelihoods.__getitem__, default=among[0]))
  best = max(log_likelihoods, key=log_likelihoods.__getitem__)
  is_clear = log_likelihoods[best] - log_likelihoods["en"] > _EVIDENCE
  return parse_tag(best) if is_clear else "en"


def _is_plainly_english(text: str) -> bool:
  count = len(_ENGLISH_WORD.findall(text))
  return count >= max(_FEWEST_ENGLISH, _SHARE_OF_ENGLISH * text.count(" "))


def languages_of(texts: Iterable[str]) -> tuple[str, ...]:
  """Returns the languages of a corpus that have a notable share of its bytes, sorted."""
  lengths: Counter[str] = Counter()
  for text in texts:
    lengths[language_of(text)] += len(text.encode())
  least = _SHARE_OF_A_LANGUAGE * lengths.total()
  return tuple(sorted(language for language, length in lengths.items() if length >= least))


_loading = threading.Lock()  # or each of the first threads would load it


def _identifier():
  with _loading:
    return _loaded_identifier()


@functools.cache
def _loaded_identifier():
  from py3langid import langid

  return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)
