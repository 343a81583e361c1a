"""Sentences drawn from a corpus, with their passages and salient spans."""

import dataclasses

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import tagged_examples
from realm_jax.data.tagged_examples import TaggedPassage


@dataclasses.dataclass(frozen=True)
class CorpusSentences:
  """Byte offsets of sentences, and of spans within them, in the texts of passages.

  Attributes:
    places_Fx5: Row of the passage, start and limit of the sentence, start and limit of the span. A
      sentence has one place per span, or one with an empty span.
  """

  store: PassageStore
  places_Fx5: np.ndarray

  @classmethod
  def read(cls, store: PassageStore, *, spans: bool) -> "CorpusSentences":
    """Reads the tagged examples of a corpus, with a place per span or per sentence."""
    row_of = dict(zip(store.uids.tolist(), range(len(store)), strict=True))
    place = _span_places if spans else _sentence_places
    places = [
      (row_of[passage.uid], *found)
      for path in tagged_examples.files(store.directory)
      for passage in tagged_examples.read_shard(path)
      if passage.uid in row_of
      for found in place(passage)
    ]
    return cls(store, np.array(places, np.int64).reshape(-1, 5))

  def drawn(self, count: int, *, seed: int) -> np.ndarray:
    """Returns `count` places in random order, at most one per sentence."""
    order = np.random.default_rng(seed).permutation(len(self.places_Fx5))
    places_Fx5 = self.places_Fx5[order]
    _, first = np.unique(places_Fx5[:, :3], axis=0, return_index=True)
    return places_Fx5[np.sort(first)[:count]]


def _sentence_places(passage: TaggedPassage) -> list[tuple[int, int, int, int]]:
  return [(start, limit, start, start) for start, limit in passage.sentences]


def _span_places(passage: TaggedPassage) -> list[tuple[int, int, int, int]]:
  return [
    (start, limit, *span)
    for start, limit in passage.sentences
    for span in passage.spans
    if start <= span[0] and span[1] <= limit
  ]
