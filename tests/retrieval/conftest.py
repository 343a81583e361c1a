"""A passage store of a few rows, and queries."""

import numpy as np
import pytest

from realm_jax.devices.datatypes import MaskedQueries, Tokens
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from tests.stores import write_store

CLS, SEP, MASK = 2, 3, 4


@pytest.fixture(scope="session")
def make_store(tmp_path_factory):
  """`make_store((title ids, body ids), ...)` writes a store; row i has uid 100 + i."""

  def make(*rows):
    tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, *(f"w{i}" for i in range(40))])
    passages = []
    for uid, (title_ids, body_ids) in enumerate(rows, 100):
      title, text = tokenizer.decode(title_ids), tokenizer.decode(body_ids)
      ids = {"title_ids": title_ids, "body_ids": body_ids}
      passages.append({"title": title, "text": text, "uid": uid, **ids})
    return write_store(tmp_path_factory.mktemp("store"), passages, tokenizer=tokenizer)

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
