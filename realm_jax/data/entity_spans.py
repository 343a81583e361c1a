"""From the sentences of a passage to words, and from their tags back to byte offsets.

Words are cut from the raw text and carry their place in it, so that nothing the tokenizer does to
a character (lower case, accents, composition) can move a span.
"""

import dataclasses
from collections.abc import Collection, Sequence

from realm_jax.data import conll
from realm_jax.data.salient_spans import to_byte_offsets
from realm_jax.data.words import split_words


@dataclasses.dataclass(frozen=True)
class SentenceWords:
  """Words of a sentence, and byte offsets `(start, limit)` of each into the passage."""

  words: tuple[str, ...]
  spans: tuple[tuple[int, int], ...]


def sentence_words(text: str, sentences: Sequence[tuple[int, int]]) -> list[SentenceWords]:
  """Returns the words of each sentence of a passage.

  Args:
    text: of the passage.
    sentences: byte offsets `(start, limit)` into it.
  """
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
  """Returns byte offsets `(start, limit)` into the passage of the entities with one of the labels.

  Args:
    sentence: its words.
    tags: one for each word.
    labels: of the entities wanted.
  """
  return [
    (sentence.spans[first][0], sentence.spans[limit - 1][1])
    for label, first, limit in conll.entities(tags)
    if label in labels
  ]
