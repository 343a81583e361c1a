"""A passage store of a few rows, and queries."""

import os

import numpy as np
import pytest

from realm_jax.corpus.passage_store import Passage, PassageStore, PassageStoreWriter
from realm_jax.devices.datatypes import MaskedQueries, Tokens
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

CLS, SEP, MASK = 2, 3, 4


@pytest.fixture(scope="session")
def make_store(tmp_path_factory):
  """`make_store((title ids, body ids), ...)` writes a store; row i has uid 100 + i."""

  def make(*rows):
    directory = tmp_path_factory.mktemp("store")
    tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, *(f"w{i}" for i in range(40))])
    writer = PassageStoreWriter(directory, tokenizer=tokenizer, max_passage_length=64)
    tokenizer.save(directory / "vocabulary")
    for i, (title_ids, body_ids) in enumerate(rows):
      writer.append(
        Passage(
          title=tokenizer.decode(title_ids),
          text=tokenizer.decode(body_ids),
          title_ids=np.array(title_ids, np.int64),
          body_ids=np.array(body_ids, np.int64),
          uid=100 + i,
        )
      )
    writer.finish(counts={})
    return PassageStore(os.fspath(directory))

  return make


@pytest.fixture(scope="session")
def store(make_store):
  return make_store(([5], [6, 7]), ([], [8]), ([9, 10], [11, 12, 13, 14, 15]), ([16], [17, 18, 19]))


@pytest.fixture(scope="session")
def make_queries():
  """`make_queries((ids, uid), ..., length=L)` makes queries that ask for their last wordpiece."""

  def make(*rows, length=6):
    ids_BxL = np.zeros((len(rows), length), np.int32)
    for row, (ids, _) in enumerate(rows):
      ids_BxL[row, : len(ids) + 2] = [CLS, *ids[:-1], MASK, SEP]
    lasts = np.array([[len(ids), 0] for ids, _ in rows], np.int32)
    return MaskedQueries(
      query=Tokens(ids=ids_BxL, mask=ids_BxL != 0, segments=np.zeros_like(ids_BxL)),
      mlm_positions_BxM=lasts,
      mlm_targets_BxM=np.array([[ids[-1], 0] for ids, _ in rows], np.int32),
      mlm_weights_BxM=np.array([[1, 0]] * len(rows), np.float32),
      source_uid_B=np.array([uid for _, uid in rows], np.int64),
    )

  return make
