"""Turns masked sentences into questions by rule (Lewis et al. 2019, "Unsupervised QA by Cloze").

People ask in fewer words than documents tell. So a question keeps the clauses around the span,
names what the document is about, begins with an interrogative and misses some
words. What results is not grammatical, but closer to a question than a sentence with a mask.
"""

import random
import re

from realm_jax.data.salient_spans import DATE

_FEWEST_WORDS = 5
_KEPT_WORDS = 0.9  # the share of the words, at random
_OF_NAMES = "who", "what", "where", "which"
_ASIDE = re.compile(r"\s*(?:\([^()]*\)|\[[^\[\]]*\])")
_BORDER = re.compile(r"[,;:]\s|\s[–—-]\s")
_PRONOUN = re.compile(r"(?:He|She|It|They)\b|(?:His|Her|Its|Their)(?=\s)")
_NUMBER = re.compile(r"[\d.,\s%]+")


def cloze_question(
  before: str, answer: str, after: str, *, title: str, draw: random.Random
) -> str | None:
  """Returns a question without question mark; None if it tells the answer or says too little.

  Args:
    before: The sentence up to the span.
    answer: The span.
    after: The sentence from the span on.
    title: What the document is about; replaces a pronoun at the beginning, and ends a question
      that does not name it. May be empty.
    draw: Chooses the interrogative of a name, and the words that are missing.
  """
  if title and _PRONOUN.match(before):
    before = _PRONOUN.sub(lambda _: title, before, count=1)
  clauses = [_BORDER.split(_ASIDE.sub("", part)) for part in (before, after)]
  words = " ".join(_around(*clauses)).rstrip(". ").split()
  kept = [word for word in words if draw.random() < _KEPT_WORDS]
  if len(kept) < _FEWEST_WORDS:
    return None
  question = " ".join([_interrogative(answer, draw), *kept]).lower()
  named = f"{question} {title.lower()}".rstrip()
  if title.lower() not in question and not _tells(named, answer):
    question = named
  return None if _tells(question, answer) else question


def _tells(question: str, answer: str) -> bool:
  return re.search(rf"(?<!\w){re.escape(answer.lower())}(?!\w)", question) is not None


def _around(before: list[str], after: list[str]) -> list[str]:
  """Returns the clauses beside the span: its own, and its neighbours' while there are few words."""
  found = [before.pop(), after.pop(0)]
  while len(" ".join(found).split()) < _FEWEST_WORDS + 2 and (before or after):
    if before:
      found.insert(0, before.pop())
    else:
      found.append(after.pop(0))
  return found


def _interrogative(answer: str, draw: random.Random) -> str:
  if _NUMBER.fullmatch(answer) and not DATE.fullmatch(answer):
    return "how many"
  return "when" if DATE.fullmatch(answer) else draw.choice(_OF_NAMES)
