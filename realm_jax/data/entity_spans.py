"""Splits the sentences of a passage into words, and maps the words' tags back to byte offsets.

Words are cut from the raw text and keep their offsets in it, so nothing that the tokenizer does to
a character (lower case, accents, composition) can shift a span.
"""

import dataclasses
from collections.abc import Collection, Sequence

from realm_jax.corpus.sentences import to_byte_offsets
from realm_jax.data import conll
from realm_jax.data.words import split_words


@dataclasses.dataclass(frozen=True)
class SentenceWords:
  """Words of a sentence, and their byte offsets `(start, limit)` in the passage."""

  words: tuple[str, ...]
  spans: tuple[tuple[int, int], ...]


def sentence_words(text: str, sentences: Sequence[tuple[int, int]]) -> list[SentenceWords]:
  """Returns the words of the sentences of a passage, given by byte offsets `(start, limit)`."""
  raw = text.encode()
  found = []
  for start, limit in sentences:
    sentence = raw[start:limit].decode()
    spans = split_words(sentence)
    found.append(
      SentenceWords(
        words=tuple(sentence[first:last] for first, last in spans),
        spans=tuple((start + a, start + b) for a, b in to_byte_offsets(sentence, spans)),
      )
    )
  return found


def entity_spans(
  sentence: SentenceWords, tags: Sequence[str], *, labels: Collection[str]
) -> list[tuple[int, int]]:
  """Returns byte offsets `(start, limit)` in the passage of the entities with one of the labels."""
  return [
    (sentence.spans[first][0], sentence.spans[limit - 1][1])
    for label, first, limit in conll.entities(tags)
    if label in labels
  ]
