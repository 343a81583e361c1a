"""The fewest leaves that reach the target recall, and the warning if none do."""

import dataclasses
import logging

import numpy as np
import pytest

from realm_jax.index import assembly
from realm_jax.index.exact_searcher import ExactSearcher
from realm_jax.index.publication import choose_leaves, reach_target
from realm_jax.index.searcher import SearcherConfig, own_part, recall_at_k

NUM_PASSAGES = 3000


@pytest.mark.parametrize(("num_leaves", "most"), [(1, 1), (2, 2), (281, 6), (2000, 7)])
@pytest.mark.parametrize("enough", [1, 2, 140, 281])
def test_the_leaves_chosen_are_nearly_the_fewest_that_reach_the_target(num_leaves, most, enough):
  measured = []

  def recall(leaves):
    measured.append(leaves)
    return min(1.0, leaves / enough)

  leaves, reached = choose_leaves(recall, num_leaves=num_leaves, target=1.0)
  assert reached == min(1.0, leaves / enough)
  assert leaves == num_leaves if enough > num_leaves else enough <= leaves < 1.1 * enough + 1
  assert len(measured) == len(set(measured)) <= most


def random_index(num_shards=1, **settings):
  config = SearcherConfig(
    kind="scann", min_passages_for_tree=100, num_shards=num_shards, **settings
  ).for_corpus(NUM_PASSAGES)
  random = np.random.default_rng(0)
  embeddings_NxE = random.standard_normal((NUM_PASSAGES, 16)).astype(np.float32)
  queries_BxE = random.standard_normal((200, 16)).astype(np.float32)
  shards = assembly.build_shards(embeddings_NxE, config=config)
  part = own_part(NUM_PASSAGES, num_shards=num_shards, index=0, count=1)
  chosen, recall = reach_target(
    config, shards, embeddings_NxE=embeddings_NxE, queries_BxE=queries_BxE, part=part
  )
  exact = ExactSearcher(embeddings_NxE).search(queries_BxE, 10)

  def measured(**settings):
    searched = assembly.assemble(shards, config=dataclasses.replace(chosen, **settings))
    return recall_at_k(searched.search(queries_BxE, 10).ids_BxK, exact.ids_BxK)

  return chosen, recall[10], measured


@pytest.mark.parametrize("num_shards", [1, 3])
def test_an_index_searches_as_many_leaves_as_its_target_takes(num_shards):
  chosen, recall, measured = random_index(num_shards, target_recall=0.9)
  assert 1 < chosen.num_leaves_to_search < chosen.num_leaves
  assert measured() == recall >= 0.9
  assert measured(num_leaves_to_search=round(0.8 * chosen.num_leaves_to_search)) < 0.9


def test_leaves_given_by_hand_stay_and_are_measured():
  chosen, recall, measured = random_index(num_leaves_to_search=2)
  assert chosen.num_leaves_to_search == 2
  assert measured() == recall < 0.9


def test_a_target_out_of_reach_takes_all_leaves_and_is_told(caplog):
  with caplog.at_level(logging.WARNING):
    chosen, recall, _ = random_index(reorder_candidates=10, target_recall=0.999)
  assert chosen.num_leaves_to_search == chosen.num_leaves
  (message,) = [record.getMessage() for record in caplog.records]
  assert message == (
    f"recall@10 is {recall:.3f} with all {chosen.num_leaves} leaves searched, target_recall=0.999; "
    "raise reorder_candidates=10, or lower the target"
  )
