"""Recognises encyclopedia pages without prose by rule: lists and disambiguation pages.

The rules for titles are those of the original system. The rule for texts finds disambiguation pages
whose title does not say so.
"""

import re

_TITLE = re.compile(r"(?:List|Index|Outline) of .|.*\(disambiguation\)")
_FIRST_LINE = re.compile(
  r"[^.\n]{1,100}\b(?:may|can|could|might) (?:also )?"
  r"(?:refer to|mean|stand for)\b[^.\n]{0,40}:\s*$",
  re.MULTILINE,
)


def is_list_or_disambiguation(title: str, text: str) -> bool:
  """Returns whether a page lists other pages, judged by its title and its first line."""
  return bool(_TITLE.match(title) or _FIRST_LINE.match(text))
