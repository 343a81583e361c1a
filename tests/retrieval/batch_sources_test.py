import time

import jax
import numpy as np
import pytest

from realm_jax.index.vectors.exact_searcher import ExactSearcher
from realm_jax.retrieval.index_refresher import IndexRefresher, LoadedGeneration, RefreshConfig
from realm_jax.retrieval.retriever import RetrievalConfig, Retriever
from realm_jax.training.run.batch_sources import RetrievedBatches, hub_share

EMBEDDINGS_NxE = np.array([[4, 0], [3, 1], [2, 2], [1, 3]], np.float32)
PARAMS = np.stack([np.arange(45), 45 - np.arange(45)], axis=1).astype(np.float32)


class Generations:
  """Generation g holds the embeddings rolled by g rows and is of step 10 g."""

  def __init__(self):
    self.published = 1

  def newest(self):
    return self.published

  def load(self, generation):
    searcher = ExactSearcher(np.roll(EMBEDDINGS_NxE, generation, axis=0))
    return LoadedGeneration(
      generation=generation, searcher=searcher, training_step=10 * generation, created=time.time()
    )


@pytest.fixture
def generations():
  return Generations()


@pytest.fixture
def refresher(generations):
  with IndexRefresher(generations, config=RefreshConfig(poll_seconds=0.005)) as refresher:
    refresher.first(stop=lambda: False)
    yield refresher


@pytest.fixture
def make_source(store, make_queries, refresher):
  def make(*, first_step=10, swaps=None):
    def queries(i):
      return make_queries(([20 + i, 30], 100 + i), ([30 - i, 31], 0)), {"data/number": float(i)}

    retriever = Retriever(
      encode_query=jax.jit(lambda params, tokens: params[tokens.ids[:, 1]]),
      searcher=refresher.current.searcher,
      store=store,
      config=RetrievalConfig(
        num_passages=3, passage_length=8, joint_length=12, null_passage="mask"
      ),
    )
    return RetrievedBatches(
      iter(range(100)),
      queries,
      retriever=retriever,
      refresher=refresher,
      put_on_devices=lambda batch: jax.tree.map(np.copy, batch),
      first_step=first_step,
      on_swap=lambda step, loaded: (
        None if swaps is None else swaps.append((step, loaded.generation))
      ),
      stop=lambda: False,
    )

  return make


def take(source):
  source.begin(PARAMS)
  return source.finish()


def assert_same(found, expected):
  jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_batches_come_with_figures_of_their_making(make_source):
  source = make_source()
  batch, figures = take(source)
  assert batch.passage_ids_BxK.shape == (2, 3)
  assert figures["data/number"] == 0
  assert figures["index/generation"] == 1
  assert figures["index/staleness_steps"] == 0
  assert 0 <= figures["index/age_seconds"] < 60
  for part in ("query_embedding_wait", "search", "gather", "transfer"):
    assert figures[f"throughput/{part}_seconds"] >= 0
  _, figures = take(source)
  assert (figures["data/number"], figures["index/staleness_steps"]) == (1, 1)


def test_a_generation_swapped_in_serves_the_batch_begun_then(make_source, generations, refresher):
  swaps = []
  source = make_source(swaps=swaps)
  before, _ = take(source)
  generations.published = 2
  deadline = time.monotonic() + 5
  while refresher._ready is None and time.monotonic() < deadline:
    time.sleep(0.002)
  source.begin(PARAMS)
  after, figures = source.finish()
  assert swaps == [(11, 2)]
  assert figures["index/generation"] == 2
  assert figures["index/staleness_steps"] == 11 - 20
  # The rolled index moves every passage by one row.
  assert before.passage_ids_BxK[1].tolist() != after.passage_ids_BxK[1].tolist()


def test_the_batch_in_flight_is_the_same_after_a_restart(make_source):
  source = make_source()
  take(source)
  placed, _ = take(source)
  saved = jax.tree.map(np.copy, source.in_flight())
  restarted = make_source(first_step=11)
  resumed = restarted.resume(saved)
  assert_same(resumed, placed)
  # Staleness goes on from there.
  _, figures = take(restarted)
  assert figures["index/staleness_steps"] == 2
  assert_same(source.in_flight(), saved)


def test_hub_share_is_of_the_passage_that_most_queries_got():
  assert hub_share(np.array([[-1, 4, 5], [-1, 5, 6], [-1, 5, -2], [-1, 7, 8]])) == 0.75
  assert hub_share(np.array([[-1, -2]] * 4)) == 0
  assert hub_share(np.array([[-1, 4, 5]])) == 0  # no collapse, though its only query got it
