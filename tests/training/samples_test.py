"""Samples as Markdown."""

import numpy as np
import pytest

from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from realm_jax.training.recipes.samples import retrieved_samples
from tests.stores import write_store

TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, "pound", "|", "*"])
TEXT = "a | b <i> & *c* [d] \\ e"


@pytest.fixture
def store(tmp_path):
  passage = {"title": "Pound", "text": TEXT, "title_ids": [5], "body_ids": [5]}
  return write_store(tmp_path, [passage], tokenizer=TOKENIZER)


def test_queries_and_passages_come_through_whole(store, make_retrieved_batch):
  batch = make_retrieved_batch(0, queries=5, passages=2, masks=1, vocab_size=8)
  ids_BxL = np.array([[2, 4, 6, 7, 3, 0]] * 5, np.int32)
  query = batch.queries.query.replace(ids=ids_BxL, mask=ids_BxL > 0)
  batch = batch.replace(
    queries=batch.queries.replace(query=query, mlm_targets_BxM=np.array([[5]] * 5)),
    passage_ids_BxK=np.array([[-1, 0]] * 5),
    stale_scores_BxK=np.array([[0, 1.5]] * 5),
  )
  text = retrieved_samples(batch, tokenizer=TOKENIZER, store=store)
  assert text.count("| 1.50 |") == 4 and "<" not in text
  assert r"**\[MASK\] \| \*** (pound)" in text
  assert r"Pound: a \| b &#60;i&#62; &#38; \*c\* \[d\] \\ e |" in text
