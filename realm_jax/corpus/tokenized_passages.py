"""Passages in memory, tokenized when they are needed, with the interface that retrieval reads."""

import itertools
from collections.abc import Sequence

import numpy as np

from realm_jax.corpus.chunking import SPECIAL_TOKENS_PER_PASSAGE
from realm_jax.corpus.passage_store import StoreMetadata, Wordpieces
from realm_jax.text.wordpieces import Tokenizer


class TokenizedPassages(Wordpieces):
  """Titles and texts as rows of passages; see `PassageStore`.

  Args:
    passages: Title and text of each passage.
    max_length: Wordpieces of `[CLS] title [SEP] body [SEP]`; longer bodies are cut.
  """

  def __init__(self, passages: Sequence[tuple[str, str]], *, tokenizer: Tokenizer, max_length: int):
    self._passages = passages
    titles, texts = (tokenizer.encode_batch([p[side] for p in passages]) for side in (0, 1))
    self._title_ids = _column(titles)
    self._body_ids = _column([ids[: max_length - SPECIAL_TOKENS_PER_PASSAGE] for ids in texts])
    self.metadata = StoreMetadata(
      num_passages=len(passages),
      fingerprint="",
      vocabulary_digest=tokenizer.digest,
      vocab_size=tokenizer.vocab_size,
      cls_id=tokenizer.cls_id,
      sep_id=tokenizer.sep_id,
      max_passage_length=max_length,
      counts={},
    )

  def __len__(self) -> int:
    return len(self._passages)

  def title(self, row: int) -> str:
    return self._passages[row][0]

  def text(self, row: int) -> str:
    return self._passages[row][1]


def _column(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
  ends = [*itertools.accumulate(map(len, rows), initial=0)]
  return np.concatenate([np.zeros(0, np.int32), *rows]), np.array(ends)
