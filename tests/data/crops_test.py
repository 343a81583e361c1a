import numpy as np
import pytest
import seqio
import tensorflow as tf

from realm_jax.data.crops import build_crops
from realm_jax.data.vocabulary import WordPieceVocabulary
from realm_jax.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

WORDS = [f"w{i}" for i in range(40)]
TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *WORDS, "title"])
FIRST = len(SPECIAL_TOKENS)


def crops(texts, *, deletion_rate=0.0, query_length=50, seed=0, shares=(0.1, 0.5)):
  passages = {"title": ["title"] * len(texts), "text": texts, "uid": np.arange(1, len(texts) + 1)}
  with seqio.utils.map_seed_manager(seed):
    data = build_crops(
      tf.data.Dataset.from_tensor_slices(passages),
      {"query": query_length, "title": 50, "body": 50},
      vocabulary=WordPieceVocabulary(TOKENIZER),
      shortest_crop=shares[0],
      longest_crop=shares[1],
      deletion_rate=deletion_rate,
    )
  return list(data.as_numpy_iterator())


def test_query_and_body_are_runs_of_one_passage_of_independent_places():
  pairs = crops([" ".join(WORDS)] * 300)
  assert len(pairs) == 300
  starts, lengths = [], []
  for pair in pairs:
    assert pair["query"][[0, -1]].tolist() == [TOKENIZER.cls_id, TOKENIZER.sep_id]
    assert pair["title"].tolist() == [FIRST + len(WORDS)]
    for crop in (pair["query"][1:-1], pair["body"]):
      np.testing.assert_array_equal(np.diff(crop), 1)
    starts.append((pair["query"][1], pair["body"][0]))
    lengths.append((len(pair["query"]) - 2, len(pair["body"])))
  assert {4, 19} <= set(np.ravel(lengths)) <= set(range(4, 21))
  # Of independent draws a correlation lies within 3.3 / sqrt(300) but for one in a thousand.
  for pair in (starts, lengths):
    assert abs(np.corrcoef(np.transpose(pair))[0, 1]) < 0.19


def test_wordpieces_are_left_out_at_the_deletion_rate_and_keep_their_order():
  pairs = crops([" ".join(WORDS)] * 100, deletion_rate=0.25, shares=(0.5, 0.5))
  lengths = [len(pair["query"]) - 2 for pair in pairs] + [len(pair["body"]) for pair in pairs]
  assert np.mean(lengths) == pytest.approx(15, abs=0.5)  # of 20; the standard error is 0.14
  assert all((np.diff(pair["body"]) > 0).all() for pair in pairs)


def test_short_passages_give_a_wordpiece_and_empty_ones_nothing():
  pairs = crops(["w1", "", "w2 w3"])
  assert [pair["uid"] for pair in pairs] == [1, 3]
  assert [len(pair["body"]) for pair in pairs] == [1, 1]


def test_a_long_query_is_cut_and_still_closed():
  (pair,) = crops([" ".join(WORDS)], query_length=5, shares=(1.0, 1.0))
  assert len(pair["query"]) == 5
  assert pair["query"][-1] == TOKENIZER.sep_id


def test_the_seed_decides_the_crops():
  first, same, other = (
    [pair["body"].tolist() for pair in crops([" ".join(WORDS)] * 8, deletion_rate=0.1, seed=seed)]
    for seed in (1, 1, 2)
  )
  assert first == same
  assert first != other
