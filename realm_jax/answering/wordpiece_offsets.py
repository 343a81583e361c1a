"""Byte offsets of the wordpieces of a passage in its raw text.

The store has ids and text but no offsets, so passages whose offsets are needed are tokenized again.
A passage that was cut inside a word, or whose sentences were tokenized separately, may get other
wordpieces there; these get the bytes between their neighbours.
"""

import difflib

import numpy as np

from realm_jax.corpus.passage_store import Passages, Rows

Offsets = tuple[np.ndarray, np.ndarray]


def body_offsets(store: Passages, tokenizer, rows: Rows) -> list[Offsets]:
  """Returns, for each row, the start and limit bytes of the body wordpieces in its text."""
  texts = [store.text(int(row)) for row in rows]
  bodies, lengths = store.body_ids(rows, length=store.metadata.max_passage_length)
  offsets = []
  encoded = tokenizer.encode_with_offsets(texts)
  for text, body, length, (ids, starts, limits) in zip(
    texts, bodies, lengths, encoded, strict=True
  ):
    body_ids = body[:length]
    if not np.array_equal(ids, body_ids):
      starts, limits = _aligned(body_ids, ids, starts, limits, num_bytes=len(text.encode()))
    offsets.append((starts, limits))
  return offsets


def _aligned(body_ids, ids, starts, limits, *, num_bytes: int) -> Offsets:
  """Copies the offsets of wordpieces that agree, and fills the gaps between them."""
  body_starts = np.full(len(body_ids), -1, np.int64)
  body_limits = np.full(len(body_ids), -1, np.int64)
  matcher = difflib.SequenceMatcher(None, ids.tolist(), body_ids.tolist(), autojunk=False)
  for there, here, size in matcher.get_matching_blocks():
    body_starts[here : here + size] = starts[there : there + size]
    body_limits[here : here + size] = limits[there : there + size]
  before = 0
  for i in range(len(body_ids)):
    if body_starts[i] < 0:
      known = np.flatnonzero(body_starts[i:] >= 0)
      after = body_starts[i + known[0]] if len(known) else num_bytes
      gap = slice(i, i + known[0] if len(known) else len(body_ids))
      body_starts[gap], body_limits[gap] = before, after
    before = body_limits[i]
  return body_starts, body_limits
