"""Only queries that another passage answers are kept."""

import numpy as np
import pytest

from realm_jax.data import answerable_queries, batches, prepared_examples
from realm_jax.devices.datatypes import MaskedQueries, Tokens
from realm_jax.jobs.preparation.prepare_examples import prepare_examples
from realm_jax.retrieval import trivial_passages
from realm_jax.text import wordpieces
from realm_jax.training.recipes.examples import ExampleSettings, ReadingOrder
from tests.data import conftest


def prepare(store, output, *, query_length=24, answerable_from=None):
  """Prepares one span of each passage; returns the manifest and all rows."""
  manifest = prepare_examples(
    task="masked_queries",
    corpus=store.directory,
    output=str(output),
    settings=ExampleSettings(query_length=query_length, max_masks=4),
    reading=ReadingOrder(order="corpus"),
    answerable_from=answerable_from,
  )
  rows = prepared_examples.open_batches(
    str(output), settings=manifest.settings, order="corpus", batch_size=sum(manifest.num_examples)
  )
  return manifest, next(rows)


def texts(vocabulary, ids_NxL, lengths_N):
  kept = (ids_L[:length] for ids_L, length in zip(ids_NxL, lengths_N, strict=True))
  return [f" {vocabulary.decode(ids)} " for ids in kept]


def answering(store, rows):
  """Returns the passages with the span and without the sentence of each row, as texts tell."""
  vocabulary = wordpieces.load(f"{store.directory}/vocabulary")
  bodies = texts(vocabulary, *store.body_ids(np.arange(len(store)), length=32))
  queries = batches.masked_queries(rows)
  sentences = texts(vocabulary, *trivial_passages.sentences(queries))
  spans = texts(
    vocabulary, queries.mlm_targets_BxM, queries.mlm_weights_BxM.sum(axis=1).astype(int)
  )
  return [
    {i for i, body in enumerate(bodies) if span in body and sentence not in body}
    for span, sentence in zip(spans, sentences, strict=True)
  ]


def test_a_query_is_kept_if_a_found_passage_has_its_span(store, tmp_path, monkeypatch):
  monkeypatch.setattr(answerable_queries, "_SEARCHED", 100)
  _, every = prepare(store, tmp_path / "every")
  expected = answering(store, every)
  answerable = [i for i, rows in enumerate(expected) if rows]
  assert 0 < len(answerable) < len(expected)
  manifest, kept = prepare(store, tmp_path / "kept", answerable_from=store.directory)
  assert manifest.selection == {
    "answerable_from": store.fingerprint,
    "retriever": "bm25",
    "searched": 100,
  }
  for name in kept:
    np.testing.assert_array_equal(kept[name], every[name][answerable])


def test_a_passage_answers_with_every_run_of_adjacent_masks(tmp_path):
  store = conftest.write(
    tmp_path / "corpus", {"": ["a b x c.", "a b c.", "b a x c.", "c x a b.", "a b.", "q a b w c."]}
  )
  words = wordpieces.load(f"{store.directory}/vocabulary")
  ids = {word: words.vocabulary.index(word) for word in "abcqw"}
  query = np.array([[words.cls_id, ids["q"], *[words.mask_id] * 2, ids["w"], words.mask_id]])
  queries = MaskedQueries(
    query=Tokens(np.pad(query, ((0, 0), (0, 1))), np.arange(7)[None] < 7, np.zeros((1, 7), int)),
    mlm_positions_BxM=np.array([[2, 3, 5, 0]]),
    mlm_targets_BxM=np.array([[*(ids[word] for word in "abc"), 0]]),
    mlm_weights_BxM=np.array([[1, 1, 1, 0]], np.float32),
    source_uid_B=np.array([1]),
  )
  rows = np.array([[-1, *range(len(store))]])
  # "a b" and "c" anywhere; the last passage has the sentence itself.
  expected = [False, True, True, False, True, False, False]
  np.testing.assert_array_equal(
    trivial_passages.find_answering(queries, rows, store=store), [expected]
  )


def test_nothing_answerable_is_an_error(people, store, tmp_path):
  with pytest.raises(ValueError, match="has another vocabulary than the corpus"):
    prepare(store, tmp_path / "x", answerable_from=people.directory)
  alone = conftest.write(tmp_path / "alone", {"": ["A poem about the Sea.", "Nothing in Rome."]})
  with pytest.raises(ValueError, match="yields no examples"):
    prepare(alone, tmp_path / "x", answerable_from=alone.directory)
  assert not (tmp_path / "x").exists()
