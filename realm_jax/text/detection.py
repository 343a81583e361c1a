"""Which language a text is written in."""

import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from realm_jax.text import tags

_CHARACTERS = 500  # of a text; more would not change the answer
# What has less of a corpus is names, quotations and mistakes.
_SHARE_OF_A_LANGUAGE = 0.02
# A text is English unless another language is exp(10) times as likely: few words are no evidence.
_EVIDENCE = 10.0
# Words that are frequent in English alone: a text with many is recognised in no time.
_ENGLISH_WORD = re.compile(r"\b(?:the|and|of|that|with|which|from|by)\b")
_FEWEST_ENGLISH, _SHARE_OF_ENGLISH = 4, 0.08
_NO_LANGUAGE = "zxx"  # numbers, codes and the like


def language_of(text: str, *, among: Sequence[str] = ()) -> str:
  """Returns the most probable language of a text.

  Args:
    among: The candidates; empty considers all known languages.
  """
  if len(among) == 1:
    return among[0]
  text = text[:_CHARACTERS]
  if (not among or "en" in among) and _is_plainly_english(text):
    return "en"
  log_likelihoods = dict(_identifier().rank(text))
  log_likelihoods.pop(_NO_LANGUAGE)
  if among:
    candidates = [label for label in log_likelihoods if tags.parse(label) in among]
    return tags.parse(max(candidates, key=log_likelihoods.__getitem__, default=among[0]))
  best = max(log_likelihoods, key=log_likelihoods.__getitem__)
  is_clear = log_likelihoods[best] - log_likelihoods["en"] > _EVIDENCE
  return tags.parse(best) if is_clear else "en"


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


@functools.cache
def _identifier():
  from py3langid import langid

  return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)
