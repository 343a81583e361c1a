"""Queries cut from passages to resemble those of training, for measuring an index."""

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices.datatypes import Tokens

_SHORTEST = 8
_NUM_MASKS = 2


def sample_queries(
  store: PassageStore, *, num_queries: int, query_length: int, mask_id: int | None
) -> Tokens:
  """Returns `[CLS] x [SEP]`, `[B, L]`, where x is a sequence of wordpieces of a passage.

  The same sequences are drawn every time; `mask_id` replaces some in the middle of each.
  """
  random = np.random.default_rng(0)
  rows = random.integers(len(store), size=num_queries)
  bodies, body_lengths = store.body_ids(rows, length=store.metadata.max_passage_length)
  longest = query_length - 2
  lengths = random.integers(min(_SHORTEST, longest), longest + 1, num_queries)
  lengths = np.minimum(lengths, body_lengths)[:, None]
  firsts = random.integers(0, body_lengths[:, None] - lengths + 1)
  columns = np.arange(query_length)
  places = np.clip(firsts + columns - 1, 0, bodies.shape[1] - 1)
  ids = np.where(columns <= lengths, np.take_along_axis(bodies, places, axis=1), 0)
  if mask_id is not None:
    first_mask = 1 + (lengths - 1) // 2
    masked = (columns >= first_mask) & (columns < first_mask + _NUM_MASKS) & (columns <= lengths)
    ids[masked] = mask_id
  ids[:, 0] = store.metadata.cls_id
  np.put_along_axis(ids, lengths + 1, store.metadata.sep_id, axis=1)
  return Tokens(ids=ids, mask=columns <= lengths + 1, segments=np.zeros_like(ids))
