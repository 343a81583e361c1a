import random
from collections import Counter

import numpy as np
import pytest

from realm_jax.corpus.chunking import (
  ChunkingConfig,
  TokenizedSentence,
  chunk_sentences,
  split_sentence,
)


def sentence(words, *, at=0, first_id=0):
  """A sentence whose words have these numbers of wordpieces, each two bytes long."""
  starts, byte = [], 0
  for pieces in words:
    starts += range(byte, byte + 2 * pieces, 2)
    byte += 2 * pieces + 1
  starts = np.array(starts, np.int64)
  ids = np.arange(first_id, first_id + len(starts), dtype=np.int32)
  limit = at + int(starts[-1]) + 2 if len(starts) else at
  return TokenizedSentence(start=at, limit=limit, ids=ids, starts=starts, limits=starts + 2)


def document(lengths):
  """Consecutive sentences with these numbers of one-wordpiece words; ids are consecutive."""
  sentences, byte, first_id = [], 0, 0
  for length in lengths:
    sentences.append(sentence([1] * length, at=byte, first_id=first_id))
    byte, first_id = sentences[-1].limit + 1, first_id + length
  return sentences


def chunk(sentences, *, budget, title_length=2, **settings):
  counts = Counter()
  config = ChunkingConfig(max_passage_length=budget + title_length + 3, **settings)
  chunks = chunk_sentences(sentences, title_length=title_length, config=config, counts=counts)
  return chunks, counts


@pytest.mark.parametrize(
  ("lengths", "budget", "max_sentences", "expected"),
  [
    ([3, 4, 5], 12, None, [[3, 4, 5]]),
    ([3, 4, 5], 11, None, [[3, 4], [5]]),  # greedy: a sentence goes where it still fits
    ([7, 4, 4, 4], 8, None, [[7], [4, 4], [4]]),
    ([8, 8], 8, None, [[8], [8]]),
    ([9, 2], 8, None, [[8], [1, 2]]),  # the rest of a long sentence is packed like a sentence
    ([2, 20, 2], 8, None, [[2], [8], [8], [4, 2]]),
    ([2, 2, 2, 2, 2], 100, 2, [[2, 2], [2, 2], [2]]),
    ([2, 0, 2], 100, None, [[2, 2]]),  # nothing to read
    ([0], 8, None, []),
    ([], 8, None, []),
  ],
)
def test_sentences_are_packed_greedily(lengths, budget, max_sentences, expected):
  chunks, _ = chunk(document(lengths), budget=budget, max_sentences=max_sentences)
  assert [[len(s.ids) for s in c.sentences] for c in chunks] == expected


def test_no_wordpiece_is_lost_and_no_chunk_too_long():
  draw = random.Random(0)
  for _ in range(300):
    budget = draw.randint(2, 12)
    max_sentences = draw.choice([None, 1, 2, 3])
    sentences, byte, first_id = [], 0, 0
    for _ in range(draw.randint(0, 6)):
      words = [draw.choice([1, 1, 2, 3, 9]) for _ in range(draw.randint(0, 10))]
      sentences.append(sentence(words, at=byte, first_id=first_id))
      byte, first_id = sentences[-1].limit + 1, first_id + sum(words)
    chunks, counts = chunk(
      sentences, budget=budget, title_length=draw.randint(0, 1), max_sentences=max_sentences
    )
    ids = [i for c in chunks for i in c.ids.tolist()]
    assert ids == list(range(first_id))
    assert all(0 < len(c.ids) <= budget for c in chunks)
    assert all(len(c.sentences) <= (max_sentences or 99) for c in chunks)
    for c in chunks:
      for piece in c.sentences:
        assert (piece.starts[0], piece.limits[-1]) == (0, piece.limit - piece.start)
        assert len(piece.ids) == len(piece.starts) == len(piece.limits)
    for before, after in zip(chunks, chunks[1:], strict=False):
      assert before.limit <= after.start
      full = len(before.ids) + len(after.sentences[0].ids) > budget
      assert full or len(before.sentences) == max_sentences
    assert counts["long_sentences_split"] == sum(len(s.ids) > budget for s in sentences)


@pytest.mark.parametrize(
  ("words", "budget", "expected"),
  [
    ([1, 1, 1, 1], 3, [3, 1]),
    ([2, 3, 1], 4, [4, 2]),  # a word is cut rather than half of the room wasted
    ([3, 2, 1], 4, [3, 3]),  # cut where a new word begins
    ([9], 4, [4, 4, 1]),
    ([1], 4, [1]),
  ],
)
def test_long_sentences_are_cut_between_words_where_there_is_such_a_place(words, budget, expected):
  pieces = split_sentence(sentence(words), budget=budget)
  assert [len(piece.ids) for piece in pieces] == expected


def pieces_of(chunks):
  return [[s.ids.tolist() for s in c.sentences] for c in chunks]


@pytest.mark.parametrize(
  ("lengths", "settings", "expected"),
  [
    ([2, 2, 2, 2], {"max_sentences": 2, "overlap": 1}, [[0, 1], [1, 2], [2, 3]]),
    ([4, 3, 3, 3], {"overlap": 1}, [[0, 1], [1, 2], [2, 3]]),
    ([2, 2, 4, 2, 2], {"overlap": 2}, [[0, 1, 2], [1, 2, 3], [2, 3, 4]]),
    ([2, 3, 3, 3], {"overlap": 2}, [[0, 1, 2], [2, 3]]),  # two do not fit with the next, one does
    ([8, 8], {"overlap": 1}, [[0], [1]]),  # a passage never outgrows its budget for an overlap
    ([2, 2], {"overlap": 1}, [[0, 1]]),  # nothing is repeated at the end
  ],
)
def test_sentences_overlap_where_there_is_room(lengths, settings, expected):
  sentences = document(lengths)
  chunks, _ = chunk(sentences, budget=8, **settings)
  assert pieces_of(chunks) == [[sentences[i].ids.tolist() for i in row] for row in expected]


@pytest.mark.parametrize(
  ("num_words", "overlap", "expected"),
  [
    # Words of 1, 2, 1 | 3, 1 | 1 wordpieces; every number is a wordpiece.
    (2, 0, [[[0, 1, 2]], [[3], [4, 5, 6]], [[7], [8]]]),
    (4, 0, [[[0, 1, 2, 3], [4, 5, 6]], [[7], [8]]]),
    (3, 1, [[[0, 1, 2, 3]], [[3], [4, 5, 6, 7]], [[7], [8]]]),
    (3, 2, [[[0, 1, 2, 3]], [[1, 2, 3], [4, 5, 6]], [[3], [4, 5, 6, 7]], [[4, 5, 6, 7], [8]]]),
    (9, 0, [[[0, 1, 2, 3], [4, 5, 6, 7], [8]]]),
  ],
)
def test_words_are_counted_across_sentences(num_words, overlap, expected):
  sentences = [sentence([1, 2, 1])]
  for words in ([3, 1], [1]):
    last = sentences[-1]
    sentences.append(sentence(words, at=last.limit + 1, first_id=int(last.ids[-1]) + 1))
  chunks, counts = chunk(sentences, budget=20, unit="words", num_words=num_words, overlap=overlap)
  assert pieces_of(chunks) == expected
  assert not counts
