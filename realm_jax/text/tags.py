"""Languages by BCP 47 tag: which stemmer, and which have a common name in this project.

A language is named by its primary subtag: `de-CH` is `de`, and `zh-Hant` is `zh`. `und`, the tag of
an undetermined language, stands for rules that need no knowledge of the language.
"""

import re
from collections.abc import Iterable

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


def parse(tag: str) -> str:
  """Returns the language of a tag.

  Raises:
    ValueError: If the tag is malformed.
  """
  lower = tag.strip().lower()
  if not _TAG.fullmatch(lower):
    raise ValueError(f"language {tag!r} is no BCP 47 tag; give one such as de, pt-BR or zh-Hant")
  primary = lower.partition("-")[0]
  return _VARIETIES.get(primary, primary)


def parse_all(tags: Iterable[str]) -> tuple[str, ...]:
  """Returns the languages of some tags, each once, in alphabetical order."""
  return tuple(sorted({parse(tag) for tag in tags}))
