"""Which language a text is written in."""

import functools
from collections import Counter
from collections.abc import Iterable, Sequence

from realm_jax.languages import tags

_CHARACTERS = 500  # of a text; more would not change the answer
# What has less of a corpus is names, quotations and mistakes.
_SHARE_OF_A_LANGUAGE = 0.02
_NO_LANGUAGE = "zxx"  # ISO 639: numbers, codes and the like


def language_of(text: str, *, among: Sequence[str] = ()) -> str:
  """Returns the most probable language of a text.

  Args:
    among: The candidates; empty considers all known languages. The first, or English, is the
      language of a text without a sign of any.
  """
  if len(among) == 1:
    return among[0]
  ranking = _identifier().rank(text[:_CHARACTERS])
  has_signs = ranking[0][1] > ranking[-1][1] and ranking[0][0] != _NO_LANGUAGE
  for label, _ in ranking if has_signs else ():
    language = tags.parse(label)
    if not among or language in among:
      return language
  return among[0] if among else "en"


def languages_of(texts: Iterable[str]) -> tuple[str, ...]:
  """Returns the languages of a corpus that have a notable share of its characters, sorted."""
  lengths: Counter[str] = Counter()
  for text in texts:
    lengths[language_of(text)] += len(text)
  least = _SHARE_OF_A_LANGUAGE * lengths.total()
  return tuple(sorted(language for language, length in lengths.items() if length >= least))


@functools.cache
def _identifier():
  from py3langid import langid

  return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)
