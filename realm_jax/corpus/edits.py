"""Edits overlaid on a passage store, which itself never changes.

Edits are immutable: a change returns new edits, so readers that hold the old ones are unaffected.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from realm_jax.corpus.passage_store import SPECIAL_TOKENS_PER_PASSAGE, Passages, Rows


@dataclasses.dataclass(frozen=True)
class WrittenPassage:
  """A passage that a user wrote; the ids exclude special tokens."""

  title: str
  text: str
  title_ids: np.ndarray
  body_ids: np.ndarray


def write_passage(title: str, text: str, *, tokenizer, max_passage_length: int) -> WrittenPassage:
  """Tokenizes a passage; its title may be empty.

  Raises:
    ValueError: If the text is empty or too long.
  """
  title, text = title.strip(), text.strip()
  title_ids, body_ids = tokenizer.encode_batch([title, text])
  if not len(body_ids):
    raise ValueError("a passage needs text; to delete the passage, remove it")
  length = SPECIAL_TOKENS_PER_PASSAGE + len(title_ids) + len(body_ids)
  if length > max_passage_length:
    raise ValueError(
      f"title and text have {length} wordpieces, and passages of this corpus at most "
      f"{max_passage_length}; shorten the text or split it into two passages"
    )
  return WrittenPassage(title, text, title_ids, body_ids)


@dataclasses.dataclass(frozen=True)
class Edits:
  """Passages changed, added and removed.

  Attributes:
    passages: The new passage of each edited id; None if it was removed. Ids past the end of the
      store are additions.
  """

  passages: Mapping[int, WrittenPassage | None] = dataclasses.field(default_factory=dict)

  def __len__(self) -> int:
    return len(self.passages)

  def with_passage(self, passage_id: int, passage: WrittenPassage | None) -> "Edits":
    """Returns edits with this passage at the id; None removes the passage."""
    return Edits({**self.passages, passage_id: passage})

  def without(self, passage_id: int) -> "Edits":
    """Returns edits without the change to this id."""
    return Edits({i: passage for i, passage in self.passages.items() if i != passage_id})

  def next_id(self, store_size: int) -> int:
    """Returns the id that the next added passage gets."""
    return max(store_size - 1, max(self.passages, default=-1)) + 1

  def written(self) -> list[tuple[int, WrittenPassage]]:
    """Returns the passages that were changed or added, by id."""
    return sorted((i, passage) for i, passage in self.passages.items() if passage is not None)


class EditedStore(Passages):
  """A passage store with edits applied, with the interface that retrieval reads."""

  def __init__(self, store: Passages, edits: Edits):
    self._store = store
    self._edits = edits
    self.metadata = store.metadata

  def __len__(self) -> int:
    return max(len(self._store), self._edits.next_id(len(self._store)))

  def holds(self, row: int) -> bool:
    """Returns whether there is a passage with this id."""
    if row in self._edits.passages:
      return self._edits.passages[row] is not None
    return 0 <= row < len(self._store)

  def edited(self, row: int) -> bool:
    """Returns whether the passage with this id was edited."""
    return row in self._edits.passages

  def title(self, row: int) -> str:
    passage = self._edits.passages.get(row)
    return self._store.title(row) if passage is None else passage.title

  def text(self, row: int) -> str:
    passage = self._edits.passages.get(row)
    return self._store.text(row) if passage is None else passage.text

  def title_ids(self, rows: Rows, *, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns what `PassageStore.title_ids` returns, with edits applied."""
    return self._edited(rows, length, self._store.title_ids, lambda passage: passage.title_ids)

  def body_ids(self, rows: Rows, *, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns what `PassageStore.body_ids` returns, with edits applied."""
    return self._edited(rows, length, self._store.body_ids, lambda passage: passage.body_ids)

  def _edited(self, rows, length: int, read, of_passage) -> tuple[np.ndarray, np.ndarray]:
    rows = np.asarray(rows)
    ids, lengths = read(np.where(rows < len(self._store), rows, 0), length=length)
    for place in np.flatnonzero(np.isin(rows, list(self._edits.passages))):
      passage = self._edits.passages[int(rows[place])]
      written = np.zeros(0, np.int32) if passage is None else of_passage(passage)[:length]
      ids[place] = 0
      ids[place, : len(written)] = written
      lengths[place] = len(written)
    return ids, lengths
