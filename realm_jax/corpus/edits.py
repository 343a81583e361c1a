"""Edits laid over a passage store, which itself never changes.

Edits are values: a change gives new ones, so that whoever reads with the old ones is not disturbed.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from realm_jax.corpus.chunking import SPECIAL_TOKENS_PER_PASSAGE
from realm_jax.corpus.passage_store import PassageStore


@dataclasses.dataclass(frozen=True)
class WrittenPassage:
  """A passage that somebody wrote; the ids carry no special tokens."""

  title: str
  text: str
  title_ids: np.ndarray
  body_ids: np.ndarray


def write_passage(title: str, text: str, *, tokenizer, max_passage_length: int) -> WrittenPassage:
  """Cuts a passage into wordpieces.

  Args:
    title: may be empty.
    text: the body.
    tokenizer: gives `encode_batch`.
    max_passage_length: wordpieces of `[CLS] title [SEP] body [SEP]` at most.

  Raises:
    ValueError: if the text is empty or too long.
  """
  title, text = title.strip(), text.strip()
  title_ids, body_ids = tokenizer.encode_batch([title, text])
  if not len(body_ids):
    raise ValueError("a passage needs a text; to take one away, remove it")
  length = SPECIAL_TOKENS_PER_PASSAGE + len(title_ids) + len(body_ids)
  if length > max_passage_length:
    raise ValueError(
      f"title and text take {length} wordpieces, a passage of this corpus has at most "
      f"{max_passage_length}; shorten it or make two passages of it"
    )
  return WrittenPassage(title, text, title_ids, body_ids)


@dataclasses.dataclass(frozen=True)
class Edits:
  """Passages changed, added and removed.

  Attributes:
    passages: what stands at an id now; None where it was removed. Ids past the store are additions.
  """

  passages: Mapping[int, WrittenPassage | None] = dataclasses.field(default_factory=dict)

  def __len__(self) -> int:
    return len(self.passages)

  def with_passage(self, passage_id: int, passage: WrittenPassage | None) -> "Edits":
    """Returns edits in which this stands at the id; None removes what stood there."""
    return Edits({**self.passages, passage_id: passage})

  def without(self, passage_id: int) -> "Edits":
    """Returns edits in which the id is as the store has it."""
    return Edits({i: passage for i, passage in self.passages.items() if i != passage_id})

  def next_id(self, store_size: int) -> int:
    """Returns the id of a further addition."""
    return max(store_size - 1, max(self.passages, default=-1)) + 1

  def written(self) -> list[tuple[int, WrittenPassage]]:
    """Returns what was changed or added, by id."""
    return sorted((i, passage) for i, passage in self.passages.items() if passage is not None)


class EditedStore:
  """A passage store as edits leave it; offers what retrieval reads.

  Args:
    store: the corpus.
    edits: what is laid over it.
  """

  def __init__(self, store: PassageStore, edits: Edits):
    self._store = store
    self._edits = edits
    self.metadata = store.metadata

  def __len__(self) -> int:
    return max(len(self._store), self._edits.next_id(len(self._store)))

  def holds(self, row: int) -> bool:
    """Returns whether there is a passage of this id."""
    if row in self._edits.passages:
      return self._edits.passages[row] is not None
    return 0 <= row < len(self._store)

  def edited(self, row: int) -> bool:
    """Returns whether the passage of this id is not the corpus's own."""
    return row in self._edits.passages

  def title(self, row: int) -> str:
    passage = self._edits.passages.get(row)
    return self._store.title(row) if passage is None else passage.title

  def text(self, row: int) -> str:
    passage = self._edits.passages.get(row)
    return self._store.text(row) if passage is None else passage.text

  def title_ids(self, rows: Sequence[int], *, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns int32 ids `[R, length]`, cut or padded with 0, and lengths `[R]` after the cut."""
    return self._rows(rows, length, "title_ids")

  def body_ids(self, rows: Sequence[int], *, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns int32 ids `[R, length]`, cut or padded with 0, and lengths `[R]` after the cut."""
    return self._rows(rows, length, "body_ids")

  def _rows(self, rows, length: int, column: str) -> tuple[np.ndarray, np.ndarray]:
    rows = np.asarray(rows)
    in_store = np.where(rows < len(self._store), rows, 0)
    ids, lengths = getattr(self._store, column)(in_store, length=length)
    for place in np.flatnonzero(np.isin(rows, list(self._edits.passages))):
      passage = self._edits.passages[int(rows[place])]
      written = np.zeros(0, np.int32) if passage is None else getattr(passage, column)[:length]
      ids[place] = 0
      ids[place, : len(written)] = written
      lengths[place] = len(written)
    return ids, lengths
