"""No query is read with a passage that holds its sentence, however the corpora were cut."""

import re

import numpy as np
import pytest

from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus
from realm_jax.jobs.preparation.prepare_examples import (
  ExampleSettings,
  ReadingOrder,
  prepare_examples,
)
from realm_jax.retrieval import trivial_passages
from realm_jax.runs.example_sources import Examples, MaskedQueryData


@pytest.fixture(scope="module")
def overlapping(world):
  """The documents of the world's passages, cut longer and with an overlap of a sentence."""
  directory = str(world / "overlapping")
  prepare_corpus(
    input=str(world / "almanac" / "documents.jsonl"),
    output=directory,
    vocabulary=str(world / "vocabulary"),
    chunking=ChunkingConfig(max_passage_length=48, overlap=1),
    num_shards=1,
  )
  return PassageStore(directory)


@pytest.fixture(scope="module", params=["streamed", "prepared"])
def queries(request, world, overlapping):
  """Queries cut from passages that overlap, which have other uids in the world's own store."""
  source = overlapping.directory
  if request.param == "prepared":
    source = str(world / "overlapping_examples")
    prepare_examples(
      task="masked_queries",
      corpus=overlapping.directory,
      output=source,
      settings=ExampleSettings(query_length=32, max_masks=3),
      reading=ReadingOrder(num_examples=64),
    )
  examples = Examples(
    data=MaskedQueryData(query_length=32, max_masks=3),
    source=source,
    vocabulary=str(world / "vocabulary"),
  ).open(batch_size=64, seed=0, training=True)
  return batches.masked_queries(next(examples))


def text(ids):
  """Returns wordpieces as text in which a regular expression finds others."""
  pieces = [r"\d+" if i == trivial_passages.ANY else str(i) for i in ids]
  return f" {' '.join(pieces)} "


@pytest.mark.parametrize("corpus", ["passages", "overlapping"])
def test_every_passage_with_the_masked_sentence_is_trivial(world, queries, corpus):
  store = PassageStore(str(world / corpus))
  ids_BxR = np.tile(np.arange(len(store)), (64, 1))
  bodies_NxP, lengths_N = store.body_ids(ids_BxR[0], length=64)
  bodies = [text(body[:length]) for body, length in zip(bodies_NxP, lengths_N, strict=True)]
  sentences = [
    text(s[:length]) for s, length in zip(*trivial_passages.sentences(queries), strict=True)
  ]
  found_BxR = trivial_passages.find(queries, ids_BxR, store=store)
  expected_BxR = np.array([[bool(re.search(s, body)) for body in bodies] for s in sentences])
  np.testing.assert_array_equal(found_BxR, expected_BxR)
  by_uid_BxR = store.uids[ids_BxR] == queries.source_uid_B[:, None]
  assert (by_uid_BxR <= found_BxR).all()
  # What was missed as long as a passage was known by its uid alone.
  assert (found_BxR & ~by_uid_BxR).any()
