import dataclasses
import random
from collections import Counter

import numpy as np
import pytest

from realm_jax.corpus.chunking import (
  ChunkingConfig,
  TokenizedSentence,
  chunk_sentences,
  make_passages,
  split_sentence,
)
from realm_jax.corpus.documents import Document
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer


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


TOKENIZER = WordPieceTokenizer(
  [*SPECIAL_TOKENS, *"the é ##e cafe in oslo zurich opens 日 本 is far . one two ##s".split()]
)


def make(
  *documents, max_passage_length=40, max_sentences=None, tag=lambda *text: [], tokenizer=TOKENIZER
):
  counts = Counter()
  found = make_passages(
    documents,
    tokenizer=tokenizer,
    tag=tag,
    config=ChunkingConfig(max_passage_length=max_passage_length, max_sentences=max_sentences),
    counts=counts,
  )
  return list(found), counts


def cut(text, spans):
  return [text.encode()[start:limit].decode() for start, limit in spans]


def words(ids):
  return [TOKENIZER.vocabulary[i] for i in ids]


def byte_span(text, part):
  start = text.encode().index(part.encode())
  return start, start + len(part.encode())


def test_offsets_are_relative_to_the_passage_in_bytes():
  text = "Thé café opens.  日本 is far.\nZürich is far. Oslo opens."
  spans = tuple(byte_span(text, part) for part in ("café", "日本", "far.\nZürich", "Oslo"))
  document = Document(id="1", title="Cafés", text=text, spans=spans)
  found, counts = make(document, max_sentences=2)
  assert not counts
  assert [p.text for p in found] == ["Thé café opens.  日本 is far.", "Zürich is far. Oslo opens."]
  assert cut(found[0].text, found[0].sentences) == ["Thé café opens.", "日本 is far."]
  assert cut(found[1].text, found[1].sentences) == ["Zürich is far.", "Oslo opens."]
  assert cut(found[0].text, found[0].spans) == ["café", "日本"]
  assert cut(found[1].text, found[1].spans) == ["Oslo"]  # the span across the border is dropped
  assert words(found[0].title_ids) == ["cafe", "##s"]
  assert words(found[0].body_ids) == "the cafe opens . 日 本 is far .".split()


def test_a_text_without_spans_is_tagged_and_one_with_spans_is_not():
  def tag(text, language):
    return [byte_span(text, "Oslo")]

  untagged = Document(id="1", title="", text="One. In Oslo.")
  ((passage,), _) = make(untagged, tag=tag)
  assert cut(passage.text, passage.spans) == ["Oslo"]
  ((passage,), _) = make(dataclasses.replace(untagged, spans=((0, 3),)), tag=tag)
  assert cut(passage.text, passage.spans) == ["One"]
  ((passage,), _) = make(dataclasses.replace(untagged, spans=()), tag=tag)
  assert passage.spans == ()


def test_a_long_sentence_becomes_several_passages_that_hold_all_of_it():
  draw = random.Random(0)
  words = draw.choices(["one", "two", "Oslo", "cafés", "日本"], k=40)
  text = f"Zürich is far. {' '.join(words)}."
  found, counts = make(Document(id="1", title="Oslo", text=text), max_passage_length=12)
  whole = TOKENIZER.encode(text)
  np.testing.assert_array_equal(np.concatenate([p.body_ids for p in found]), whole)
  assert all(len(p.body_ids) + len(p.title_ids) + 3 <= 12 for p in found)
  for passage in found:
    np.testing.assert_array_equal(TOKENIZER.encode(passage.text), passage.body_ids)
    assert passage.sentences[-1][1] == len(passage.text.encode())
  assert counts["long_sentences_split"] == 1


def test_text_is_cut_between_characters_even_where_one_is_several_wordpieces():
  pieces = [*SPECIAL_TOKENS, "ᄒ", "##ᄂ", "##ᄃ", "##ᅡ", "##ᆫ"]
  found, _ = make(
    Document(id="1", title="", text="한난단"),
    tokenizer=WordPieceTokenizer(pieces),
    max_passage_length=7,
  )
  assert "".join(passage.text for passage in found) == "한난단"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_document_gives_the_same_passages_in_any_company(size):
  documents = [
    Document(id=str(i), title=f"one {i}", text="The café. " * i + "。" + "Two is far. " * 2)
    for i in range(5)
  ]
  expected, expected_counts = make(*documents, max_passage_length=12)
  found, counts = [], Counter()
  for first in range(0, len(documents), size):
    some, some_counts = make(*documents[first : first + size], max_passage_length=12)
    found += some
    counts.update(some_counts)
  assert [(p.uid, p.text, p.sentences, p.body_ids.tolist()) for p in found] == [
    (p.uid, p.text, p.sentences, p.body_ids.tolist()) for p in expected
  ]
  assert counts == expected_counts
