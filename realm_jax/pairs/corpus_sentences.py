"""Sentences drawn from a corpus, with their passages and salient spans."""

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import tagged_examples
from realm_jax.data.tagged_examples import TaggedPassage


def read(store: PassageStore, *, spans: bool) -> np.ndarray:
  """Returns int64 `[F, 5]`, a place per span or per sentence of the corpus's tagged examples.

  A place has the row of the passage and, as byte offsets in its text, the start and limit of the
  sentence and of the span. The span of a place per sentence is empty.
  """
  row_of = dict(zip(store.uids.tolist(), range(len(store)), strict=True))
  place = _span_places if spans else _sentence_places
  places = [
    (row_of[passage.uid], *found)
    for path in tagged_examples.files(store.directory)
    for passage in tagged_examples.read_shard(path)
    if passage.uid in row_of
    for found in place(passage)
  ]
  return np.array(places, np.int64).reshape(-1, 5)


def drawn(places_Fx5: np.ndarray, count: int, *, seed: int) -> np.ndarray:
  """Returns `count` places in random order, at most one per sentence."""
  places_Fx5 = np.random.default_rng(seed).permutation(places_Fx5)
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
