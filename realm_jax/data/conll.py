"""Sentences with an entity tag on each word, in CoNLL's column format.

A line has a word and, in its last column, the word's tag. Columns are separated by tabs or spaces,
and an empty line ends a sentence. Other columns, as in CoNLL-2003, and its `-DOCSTART-` lines are
ignored. A tag is `O`, or `B-` or `I-` followed by any label. CoNLL-2003's own files use `B-` only
between two adjacent entities with the same label; the tags returned here use `B-` wherever an
entity begins.
"""

import dataclasses
import hashlib
import os
import re
from collections.abc import Iterable, Sequence

OUTSIDE = "O"
_DOCUMENT_BORDER = "-DOCSTART-"
_TAG = re.compile(r"O|[BI]-\S+")


@dataclasses.dataclass(frozen=True)
class TaggedSentence:
  """The words of a sentence, and a tag for each."""

  words: tuple[str, ...]
  tags: tuple[str, ...]


def digest(path: str | os.PathLike) -> str:
  """Returns a digest of a file."""
  with open(path, "rb") as file:
    return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def read_conll(path: str | os.PathLike) -> list[TaggedSentence]:
  """Reads the sentences of a file.

  Raises:
    FileNotFoundError: If the file is missing.
    ValueError: If a line has no tag (the message names the line), or the file has no sentences.
  """
  sentences: list[TaggedSentence] = []
  words: list[str] = []
  tags: list[str] = []

  def end_sentence() -> None:
    if words:
      sentences.append(TaggedSentence(tuple(words), tuple(from_beginnings(tags))))
      words.clear()
      tags.clear()

  with open(path, encoding="utf-8") as file:
    for number, line in enumerate(file, 1):
      # Split at tabs if there are any: a word may contain an unusual kind of space.
      columns = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
      if not "".join(columns).strip() or columns[0] == _DOCUMENT_BORDER:
        end_sentence()
      elif len(columns) < 2 or not _TAG.fullmatch(columns[-1].strip()):
        raise ValueError(
          f"{os.fspath(path)}:{number}: {line.strip()!r} does not end in a tag such as O, B-PER or "
          "I-PER; write one word and its tag per line"
        )
      else:
        words.append(columns[0])
        tags.append(columns[-1].strip())
  end_sentence()
  if not sentences:
    raise ValueError(f"{os.fspath(path)} has no sentences")
  return sentences


def from_beginnings(tags: Iterable[str]) -> list[str]:
  """Returns the tags with `B-` wherever an entity begins, even if the input has `I-` there."""
  result: list[str] = []
  for tag in tags:
    if tag.startswith("I-") and (not result or result[-1][2:] != tag[2:]):
      tag = f"B-{tag[2:]}"
    result.append(tag)
  return result


def tag_set(sentences: Iterable[TaggedSentence]) -> tuple[str, ...]:
  """Returns `O`, then `B-` and `I-` of each label that occurs, in alphabetical order of labels."""
  labels = {tag[2:] for sentence in sentences for tag in sentence.tags if tag != OUTSIDE}
  return (OUTSIDE, *(f"{prefix}-{label}" for label in sorted(labels) for prefix in "BI"))


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
  """Returns `(label, first word, limit)` of each entity, in order.

  `I-` after `O` or another label begins an entity, as in CoNLL's own evaluation.
  """
  found: list[tuple[str, int, int]] = []
  for place, tag in enumerate(from_beginnings(tags)):
    if tag.startswith("B-"):
      found.append((tag[2:], place, place + 1))
    elif tag != OUTSIDE:
      label, first, _ = found.pop()
      found.append((label, first, place + 1))
  return found
