"""Sample queries: sequences from passages between `[CLS]` and `[SEP]`."""

import os

import numpy as np
import pytest

from realm_jax.corpus.passage_store import PassageStore, PassageStoreWriter
from realm_jax.index.publication import sample_queries
from realm_jax.text.wordpieces import SPECIAL_TOKENS, WordPieces

CLS, SEP, MASK = 2, 3, 4


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  """Passages of consecutive wordpieces, including an empty and a short one."""
  directory = tmp_path_factory.mktemp("store")
  pieces = WordPieces([*SPECIAL_TOKENS, *(f"w{i}" for i in range(100))])
  writer = PassageStoreWriter(directory, tokenizer=pieces, max_passage_length=64)
  for body in (range(5, 60), range(30, 90), [], range(5, 8)):
    body_ids = np.array(body, np.int64)
    writer.append(title="", text="", title_ids=body_ids[:0], body_ids=body_ids, uid=1)
  writer.finish(counts={})
  return PassageStore(os.fspath(directory))


@pytest.mark.parametrize("query_length", [4, 24, 96])
def test_a_query_is_a_stretch_of_a_passage(store, query_length):
  tokens = sample_queries(store, num_queries=50, query_length=query_length, mask_id=None)
  assert tokens.shape == (50, query_length)
  lengths = tokens.mask.sum(axis=1)
  assert len(set(lengths)) > 1
  for ids, length in zip(tokens.ids, lengths, strict=True):
    assert (ids[0], ids[length - 1]) == (CLS, SEP)
    assert (np.diff(ids[1 : length - 1]) == 1).all()
    assert (ids[length:] == 0).all()
