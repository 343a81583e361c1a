import pytest

from realm_jax.answering.wordpiece_offsets import body_offsets
from realm_jax.text import tokenization
from tests.stores import write_store

WORDS = "the u . s paris par ##is cafe in , 日 本 - x ##x".split()
TOKENIZER = tokenization.WordPieceTokenizer([*tokenization.SPECIAL_TOKENS, *WORDS])


@pytest.fixture
def make_store(tmp_path):
  def make(*rows):
    passages = [{"text": text, "body_ids": ids} for text, ids in rows]
    return write_store(tmp_path, passages, tokenizer=TOKENIZER)

  return make


def slices(store, row):
  ((starts, limits),) = body_offsets(store, TOKENIZER, [row])
  raw = store.text(row).encode()
  return [raw[start:limit].decode() for start, limit in zip(starts, limits, strict=True)]


@pytest.mark.parametrize(
  ("text", "pieces"),
  [
    ("The U.S., in Paris", ["The", "U", ".", "S", ".", ",", "in", "Paris"]),
    ("Café 日本-x", ["Café", "日", "本", "-", "x"]),
    ("in\n\n  Paris.", ["in", "Paris", "."]),
  ],
)
def test_wordpieces_are_found_in_the_raw_text(make_store, text, pieces):
  store = make_store((text, TOKENIZER.encode(text)))
  assert slices(store, 0) == pieces


def test_wordpieces_of_a_word_cut_by_the_passage_get_what_lies_between_their_neighbours(make_store):
  piece = {word: i for i, word in enumerate(TOKENIZER.vocabulary)}
  # The whole word was xx paris; the passage begins with its second letter.
  store = make_store(("x in Paris xx", [piece[w] for w in ("##x", "in", "paris", "x", "##x")]))
  assert slices(store, 0) == ["x ", "in", "Paris", "x", "x"]
  other = make_store(("Paris in, U", [piece[w] for w in ("par", "##is", "in", ",", "the", "s")]))
  assert slices(other, 0) == ["Paris ", "Paris ", "in", ",", " U", " U"]
