"""A store with edits applied."""

import pytest

from realm_jax.corpus.edits import EditedStore, Edits, write_passage
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from tests.stores import write_store

TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, "pound", "euro", "is", "old"])
POUND, EURO, IS, OLD = range(5, 9)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  passages = [{"title": "Pound", "text": "pound is old", "title_ids": [POUND]}, "euro is"]
  return write_store(tmp_path_factory.mktemp("store"), passages, tokenizer=TOKENIZER)


def write(title, text):
  return write_passage(title, text, tokenizer=TOKENIZER, max_passage_length=9)


def test_edits_change_add_and_remove(store):
  edits = Edits().with_passage(0, write("Euro", "euro is old")).with_passage(2, write("", "old"))
  edits = edits.with_passage(1, None)
  view = EditedStore(store, edits)
  assert len(view) == 3
  assert [view.holds(i) for i in range(-1, 4)] == [False, True, False, True, False]
  assert [view.edited(i) for i in (0, 1, 2, 3)] == [True, True, True, False]
  assert (view.title(0), view.text(0), view.text(2)) == ("Euro", "euro is old", "old")
  ids, lengths = view.body_ids([2, 0, 1], length=2)
  assert ids.tolist() == [[OLD, 0], [EURO, IS], [0, 0]]
  assert lengths.tolist() == [1, 2, 0]
  assert view.title_ids([0], length=4)[0].tolist() == [[EURO, 0, 0, 0]]
