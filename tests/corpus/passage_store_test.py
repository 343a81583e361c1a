import os

import numpy as np
import pytest

from realm_jax.corpus.passage_store import Passage, PassageStore, PassageStoreWriter, passage_uid
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *"abcdefgh"])
ROWS = (
  {"title": "Åland", "text": "日本 😀.", "title_ids": [5], "body_ids": [6, 7, 8], "uid": 11},
  {"title": "", "text": "b", "title_ids": [], "body_ids": [9], "uid": 2**62},
  {"title": "Two words", "text": "c d", "title_ids": [6, 7], "body_ids": [10, 11], "uid": 13},
)


def write(directory, rows=ROWS, *, tokenizer=TOKENIZER, counts=None):
  os.makedirs(directory)
  writer = PassageStoreWriter(directory, tokenizer=tokenizer, max_passage_length=9)
  for row in rows:
    writer.append(Passage(**row))
  return writer.finish(counts=counts or {})


@pytest.fixture
def store(tmp_path):
  write(tmp_path / "store", counts={"passages": 3})
  return PassageStore(tmp_path / "store")


def test_rows_come_back(store):
  assert len(store) == 3
  assert [store.title(row) for row in range(3)] == [row["title"] for row in ROWS]
  assert [store.text(row) for row in range(3)] == [row["text"] for row in ROWS]
  assert store.uids.tolist() == [row["uid"] for row in ROWS]
  np.testing.assert_array_equal(store.lengths(), [3 + 1 + 3, 3 + 0 + 1, 3 + 2 + 2])


def test_passages_know_their_documents_which_are_no_part_of_the_fingerprint(tmp_path, store):
  assert store.document(0) == ""
  named = [{**row, "document": name} for row, name in zip(ROWS, ("d1", "d1", "é"), strict=True)]
  write(tmp_path / "named", named)
  found = PassageStore(tmp_path / "named")
  assert [found.document(row) for row in range(3)] == ["d1", "d1", "é"]
  assert found.fingerprint == store.fingerprint


def test_ids_are_cut_or_padded(store):
  ids, lengths = store.body_ids([2, 0, 0], length=2)
  assert ids.dtype == np.int32
  np.testing.assert_array_equal(ids, [[10, 11], [6, 7], [6, 7]])
  np.testing.assert_array_equal(lengths, [2, 2, 2])
  ids, lengths = store.title_ids([0, 1, 2], length=3)
  np.testing.assert_array_equal(ids, [[5, 0, 0], [0, 0, 0], [6, 7, 0]])
  np.testing.assert_array_equal(lengths, [1, 0, 2])
  ids, lengths = store.body_ids([], length=4)
  assert ids.shape == (0, 4)


def test_every_change_changes_the_fingerprint(tmp_path):
  changed = [
    ROWS,
    ROWS[:2],
    (ROWS[1], ROWS[0], ROWS[2]),
    ({**ROWS[0], "title": "Aland"}, *ROWS[1:]),
    ({**ROWS[0], "text": "日本 😀!"}, *ROWS[1:]),
    ({**ROWS[0], "title_ids": [6]}, *ROWS[1:]),
    ({**ROWS[0], "body_ids": [6, 7, 9]}, *ROWS[1:]),
    # The same letters and ids, with the borders between the rows elsewhere.
    ({**ROWS[0], "body_ids": [6, 7]}, {**ROWS[1], "body_ids": [8, 9]}, ROWS[2]),
    (ROWS[0], {**ROWS[1], "title": "T"}, {**ROWS[2], "title": "wo words"}),
  ]
  found = [write(tmp_path / str(i), rows).fingerprint for i, rows in enumerate(changed)]
  cased = WordPieceTokenizer(TOKENIZER.vocabulary, lower_case=False)
  found.append(write(tmp_path / "cased", tokenizer=cased).fingerprint)
  assert len(set(found)) == len(found)


@pytest.mark.parametrize(
  "name", ["titles.bin", "texts.offsets.bin", "title_ids.bin", "body_ids.bin", "uids.bin"]
)
def test_a_damaged_column_is_refused_by_name(tmp_path, name):
  write(tmp_path / "store")
  path = tmp_path / "store" / name
  path.write_bytes(path.read_bytes()[:-1])
  with pytest.raises(ValueError, match=f"{name} is damaged: it has .* bytes instead of "):
    PassageStore(tmp_path / "store")


def test_uids_name_title_and_text():
  pairs = [("a", "b"), ("a", "c"), ("b", "a"), ("", "ab"), ("ab", ""), ("é", "日")]
  uids = [passage_uid(title, text) for title, text in pairs]
  assert len(set(uids)) == len(uids)
  assert all(0 < uid < 2**63 for uid in uids)
  assert uids == [passage_uid(title, text) for title, text in pairs]


@pytest.mark.parametrize("name", ["vocabulary", "tokenizer"])
def test_a_store_with_another_vocabulary_is_refused(tmp_path, name):
  write(tmp_path / "store")
  store = PassageStore(tmp_path / "store")
  WordPieceTokenizer(TOKENIZER.vocabulary, lower_case=False).save(store.vocabulary_directory)
  with pytest.raises(ValueError, match="prepare the corpus again"):
    getattr(store, name)
