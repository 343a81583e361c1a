import numpy as np
import pytest

from realm_jax.data.word_tagging import tag_words
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

PIECES = ("a", "b", "long", "##er", "##est", "é", "日", ".")


@pytest.fixture(scope="module")
def tokenizer():
  return WordPieceTokenizer([*SPECIAL_TOKENS, *PIECES])


class Reader:
  """Predicts the id of each wordpiece, and records what it read."""

  def __init__(self):
    self.read = []

  def __call__(self, tokens):
    self.read.append(tokens)
    return tokens.ids


def tagged(tokenizer, sentences, reader=None, **settings):
  settings = {"max_length": 16, "tokens_per_batch": 64} | settings
  reader = Reader() if reader is None else reader
  tags = tag_words(sentences, tokenizer=tokenizer, predict=reader, **settings)
  vocabulary = tokenizer.vocabulary
  return [[vocabulary[i] if i else None for i in sentence] for sentence in tags]


def test_a_word_has_the_tag_of_its_first_wordpiece(tokenizer):
  sentences = [["longest", "a", "longer"], [], ["zzz", "b."], ["\u200b", "b", "\u0301"]]
  assert tagged(tokenizer, sentences) == [
    ["long", "a", "long"],
    [],
    ["[UNK]", "b"],
    [None, "b", None],
  ]
  assert tagged(tokenizer, []) == []
  assert tagged(tokenizer, [[]]) == [[]]


def test_tags_do_not_depend_on_how_sentences_are_batched(tokenizer):
  random = np.random.default_rng(0)
  words = ("a", "b", "longest", "longerer", "日日", "é", "zz", "\u200b")
  sentences = [random.choice(words, random.integers(0, 30)).tolist() for _ in range(40)]
  first = {"a": "a", "b": "b", "longest": "long", "longerer": "long", "日日": "日", "é": None}
  first |= {"zz": "[UNK]", "\u200b": None}
  # Uncased, é is e, which the vocabulary lacks.
  first["é"] = "[UNK]"
  expected = [[first[word] for word in sentence] for sentence in sentences]
  for settings in (
    {"max_length": 5},
    {"max_length": 24},
    {"max_length": 512, "tokens_per_batch": 1},
    {"max_length": 40, "tokens_per_batch": 10_000, "multiple_of": 8},
  ):
    assert tagged(tokenizer, sentences, **settings) == expected


def test_batches_hold_sentences_of_similar_length(tokenizer):
  reader = Reader()
  sentences = [["a"] * n for n in (60, 3, 20, 61, 5, 200, 2)]
  tagged(tokenizer, sentences, reader, max_length=100, tokens_per_batch=128, multiple_of=2)
  # 200 words are three windows: two full ones and a rest of four.
  assert [tokens.shape for tokens in reader.read] == [(8, 16), (4, 24), (2, 64), (2, 100)]
  for tokens in reader.read:
    assert (tokens.ids[:, 0] == tokenizer.cls_id).all()
    assert ((tokens.ids == tokenizer.sep_id).sum(axis=1) == 1).all()
    np.testing.assert_array_equal(tokens.mask, tokens.ids != 0)


def test_a_word_longer_than_the_input_is_read_by_its_beginning(tokenizer):
  reader = Reader()
  assert tagged(tokenizer, [["b", "a.a.a.a.a.a.a.a"]], reader, max_length=6) == [["b", "a"]]
  assert max(tokens.shape[1] for tokens in reader.read) == 6
