"""What a builder does around a generation: queries, leaves for its recall, and what it keeps."""

import dataclasses
import itertools
import logging
import pathlib

import ml_dtypes
import numpy as np
import pytest

from realm_jax.index import assembly, publication
from realm_jax.index.publication import (
  UnfinishedEmbeddings,
  choose_leaves,
  reach_target,
  sample_queries,
)
from realm_jax.index.vectors.exact_searcher import ExactSearcher
from realm_jax.index.vectors.searcher import SearcherConfig, own_part, recall_at_k, split_rows
from realm_jax.text.wordpieces import SPECIAL_TOKENS, WordPieces
from tests.stores import write_store

NUM_PASSAGES = 3000
CLS, SEP, MASK = 2, 3, 4
ROWS = slice(3, 8)
KEPT_5xE = np.arange(20, dtype=ml_dtypes.bfloat16).reshape(5, 4)


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


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  """Passages of consecutive wordpieces, including an empty and a short one."""
  pieces = WordPieces([*SPECIAL_TOKENS, *(f"w{i}" for i in range(100))])
  bodies = (range(5, 60), range(30, 90), (), range(5, 8))
  passages = [{"text": "", "body_ids": body} for body in bodies]
  directory = tmp_path_factory.mktemp("store")
  return write_store(directory, passages, tokenizer=pieces, max_passage_length=64)


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


@pytest.fixture
def index(tmp_path):
  index = str(tmp_path / "index")
  of_encoder(index, "a").save(ROWS, KEPT_5xE)
  return index


def of_encoder(index, digest, *, step=7):
  return UnfinishedEmbeddings(index=index, step=step, identity={"parameters_digest": digest})


def test_what_was_saved_comes_back_until_it_is_removed(index):
  found = np.zeros_like(KEPT_5xE)
  assert of_encoder(index, "a").load(ROWS, found)
  np.testing.assert_array_equal(found, KEPT_5xE)
  assert publication.unfinished_steps(index) == [7]
  publication.remove_unfinished(index)
  publication.remove_unfinished(index)
  assert not publication.unfinished_steps(index)
  assert not of_encoder(index, "a").load(ROWS, found)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_passages_are_divided_alike_whatever_the_number_of_processes(count):
  parts = split_rows(95, count)
  found = [publication.borders(part.start, part.stop, every=10) for part in parts]
  own_borders = {border for part in parts for border in (part.start, part.stop)}
  assert {border for borders in found for border in borders} == own_borders | set(range(0, 95, 10))
  for borders, part in zip(found, parts, strict=True):
    assert (borders[0], borders[-1]) == (part.start, part.stop)
    assert all(0 < stop - start <= 10 for start, stop in itertools.pairwise(borders))


@pytest.mark.parametrize(
  ("digest", "step", "rows"), [("b", 7, ROWS), ("a", 8, ROWS), ("a", 7, slice(3, 9))]
)
def test_embeddings_of_another_encoder_step_or_rows_are_not_used(index, digest, step, rows):
  found = np.zeros((rows.stop - rows.start, 4), KEPT_5xE.dtype)
  assert not of_encoder(index, digest, step=step).load(rows, found)
  assert not found.any()


@pytest.mark.parametrize("name", ["*.bin", "*.json"])
def test_damaged_embeddings_are_not_used(index, name):
  (file,) = pathlib.Path(f"{index}.unfinished", "7").rglob(name)
  content = bytearray(file.read_bytes())
  content[-3] ^= 1
  file.write_bytes(content)
  found = np.zeros_like(KEPT_5xE)
  assert not of_encoder(index, "a").load(ROWS, found)
  assert not found.any()
