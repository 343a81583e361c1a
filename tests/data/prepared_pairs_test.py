"""Pairs on disk: prepared, and read in batches."""

import numpy as np
import pytest

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.recurring_spans import PairSettings
from realm_jax.jobs.preparation.prepare_examples import (
  ExampleSettings,
  ReadingOrder,
  prepare_examples,
)
from realm_jax.retrieval.joint_inputs import passage_tokens
from realm_jax.training.examples import PairData, pair_examples

DATA = PairData(
  pairs="recurring_spans", batch_size=2, query_length=12, passage_length=16, data_streams=1
)


def prepare(store, output, *, query_length=12, **reading):
  return prepare_examples(
    task="recurring_spans",
    corpus=store.directory,
    output=str(output),
    reading=ReadingOrder(**reading),
    settings=ExampleSettings(query_length=query_length),
    pairs=PairSettings(num_positives=2, num_hard_negatives=2),
  )


@pytest.fixture(scope="module")
def prepared(store, tmp_path_factory):
  output = tmp_path_factory.mktemp("prepared") / "pairs"
  assert prepare(store, output).num_examples == (2,)
  return str(output)


def test_a_batch_has_a_right_passage_and_wrong_ones_of_each_query(store, prepared):
  streams = pair_examples(DATA, source=prepared, store=store).streams(seed=0)
  batch = next(streams)
  rows = {int(uid): row for row, uid in enumerate(store.uids)}
  right, wrong = batch["passage_uid"].T
  assert {rows[uid] for uid in right.tolist()} <= {0, 1}
  assert {rows[uid] for uid in wrong.tolist()} == {2}
  assert (batch["also_right"][:, 0] == right).all()
  assert not batch["also_right"][:, 1].any()
  ids_BxK = np.vectorize(rows.get)(batch["passage_uid"])
  expected = passage_tokens(store, ids_BxK, length=16)
  np.testing.assert_array_equal(batch["passage"], expected.ids)
  np.testing.assert_array_equal(batch["passage_segments"], expected.segments)


def test_an_empty_place_has_no_wordpieces(store, prepared):
  data = PairData(**{**vars(DATA), "hard_negatives": 2})
  batch = next(pair_examples(data, source=prepared, store=store).streams(seed=0))
  assert batch["passage"].shape == (2, 3, 16)
  assert not batch["passage"][:, 2].any()
  assert not batch["passage_uid"][:, 2].any()


def test_batches_go_on_where_they_were(store, prepared):
  examples = pair_examples(DATA, source=prepared, store=store)
  streams = examples.streams(seed=0)
  next(streams)
  position = streams.position()
  expected = [next(streams) for _ in range(3)]
  restored = examples.streams(seed=0)
  restored.restore(position)
  for batch in expected:
    for name, value in next(restored).items():
      np.testing.assert_array_equal(value, batch[name], err_msg=name)


def test_what_does_not_fit_is_refused(store, prepared, tmp_path):
  other = PassageStore(store.directory)
  object.__setattr__(other.metadata, "fingerprint", "another")
  with pytest.raises(ValueError, match="prepared with corpus_fingerprint=.*, here another"):
    pair_examples(DATA, source=prepared, store=other).streams(seed=0)
  data = PairData(**{**vars(DATA), "pairs": "inverse_cloze"})
  with pytest.raises(ValueError, match="task=recurring_spans, here inverse_cloze"):
    pair_examples(data, source=prepared, store=store).streams(seed=0)
  with pytest.raises(ValueError, match="'recurring_spans' are mined before training: run `realm"):
    pair_examples(DATA, source=None, store=store).streams(seed=0)
  data = PairData(**{**vars(DATA), "hard_negatives": 3})
  with pytest.raises(ValueError, match="hard_negatives=3, but 2 were prepared; lower"):
    next(pair_examples(data, source=prepared, store=store).streams(seed=0))
  with pytest.raises(ValueError, match="query_length=2; .* needs at least 3"):
    prepare(store, tmp_path / "none", query_length=2)


def test_streams_divide_the_pairs_that_are_wanted(store, tmp_path):
  assert prepare(store, tmp_path / "all", data_streams=2).num_examples == (1, 1)
  assert prepare(store, tmp_path / "some", num_examples=1).num_examples == (1,)
  with pytest.raises(ValueError, match="has 2 queries of recurring spans for data_streams=3; give"):
    prepare(store, tmp_path / "few", data_streams=3)
