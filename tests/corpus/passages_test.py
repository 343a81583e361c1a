import dataclasses
import random
from collections import Counter

import numpy as np
import pytest

from realm_jax.corpus import passages
from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.documents import Document
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

TOKENIZER = WordPieceTokenizer(
  [*SPECIAL_TOKENS, *"the é ##e cafe in oslo zurich opens 日 本 is far . one two ##s".split()]
)


def make(
  *documents, max_passage_length=40, max_sentences=None, tag=lambda *text: [], tokenizer=TOKENIZER
):
  counts = Counter()
  found = passages.make_passages(
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
