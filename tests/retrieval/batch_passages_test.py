"""Queries are read with the passages that other queries of the batch were cut from."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoder, DualEncoderConfig
from realm_jax.objectives.marginal_likelihood import masked_lm_over_retrieval
from realm_jax.retrieval import batch_passages
from realm_jax.retrieval.retriever import Gatherer, RetrievalConfig


@pytest.fixture(scope="module")
def many(make_store):
  """Passage i has the body (5 + i, 20)."""
  return make_store(*(([30], [5 + i, 20]) for i in range(12)))


@pytest.fixture
def cut_from(make_queries):
  """`cut_from(i, ...)` makes queries that were cut from these passages; None is from none."""

  def make(*rows):
    return make_queries(*(([35, 20], 0) if i is None else ([5 + i, 20], 100 + i) for i in rows))

  return make


def find(queries, store, *, neighbours=1, num_streams=1):
  kept = {"store": store, "count": 6, "neighbours": neighbours, "num_streams": num_streams}
  return batch_passages.find(queries, **kept).ids_BxK.tolist()


def chosen(queries, store, *, num_passages, neighbours=1, **settings):
  config = RetrievalConfig(
    num_passages=num_passages, num_from_batch=num_passages - 1, passage_length=8, **settings
  )
  gatherer = Gatherer(store=store, config=config, neighbours=neighbours)
  passages, figures = gatherer.choose(queries)
  assert gatherer.gather(queries, passages).valid_BxK.tolist() == (passages.ids_BxK > -2).tolist()
  return passages.ids_BxK.tolist(), figures


def test_near_passages_come_first_and_all_others_follow(many, cut_from):
  found = find(cut_from(4, 1, 11, 5, 2, 7), many, neighbours=4)
  of_four, of_one, of_eleven = found[:3]
  assert of_four[:3] == [4, 5, 2] and sorted(of_four[3:5]) == [1, 7] and of_four[5] == 11
  assert of_one[:3] == [1, 2, 4] and sorted(of_one[3:]) == [5, 7, 11]
  assert of_eleven[0] == 11 and sorted(of_eleven[1:]) == [1, 2, 4, 5, 7]


def test_others_are_drawn_alike_for_a_batch_and_differently_for_its_queries(many, cut_from):
  rows = tuple(range(12))
  found = find(cut_from(*rows), many)
  assert found == find(cut_from(*rows), many) != find(cut_from(*rows[::-1]), many)[::-1]
  assert [row[0] for row in found] == list(rows)
  orders = {tuple(np.argsort(row[1:])) for row in found}
  assert len(orders) > 6


def test_a_query_of_no_passage_is_read_with_others_and_is_no_candidate(many, cut_from):
  found = find(cut_from(3, None, 0, 3), many, neighbours=3)
  assert found[0] == found[3] == [3, 0, -2, -2, -2, -2]
  assert sorted(found[1]) == [-2, -2, -2, -2, 0, 3]
  assert find(cut_from(None, None), many) == [[-2] * 6] * 2
  of_none = find(cut_from(0, 4, 9, *[None] * 6), many, neighbours=12)[3:]
  assert len({tuple(row) for row in of_none}) > 1  # none is near it


def test_candidates_are_of_the_same_data_stream(many, cut_from):
  streams = (1, 2, 3, 8), (4, 5, 6, 7)
  apart = [row for rows in streams for row in find(cut_from(*rows), many, neighbours=3)]
  assert find(cut_from(*streams[0], *streams[1]), many, num_streams=2, neighbours=3) == apart


def test_a_query_is_never_read_with_its_own_passage_nor_one_that_holds_its_sentence(
  make_store, cut_from
):
  store = make_store(*(([30], body) for body in ([5, 20], [6, 20], [9, 5, 20], [8, 20])))
  ids, figures = chosen(cut_from(0, 1, 3), store, num_passages=3, neighbours=5)
  assert ids == [[-1, 1, 3], [-1, 0, 3], [-1, 1, 0]]
  assert figures == {"retrieval/trivial_passages": 1.0}
  # Passage 2 repeats the sentence of passage 0.
  of_two = cut_from(0, 2).replace(source_uid_B=np.array([100, 102]))
  assert chosen(of_two, store, num_passages=3)[0][0] == [-1, -2, -2]


def test_its_own_passage_can_be_read_first_or_like_any_other(many, cut_from):
  first, figures = chosen(cut_from(4, 9), many, num_passages=2, trivial_passage="first")
  assert first == [[-1, 4], [-1, 9]] and figures["retrieval/own_passage_share"] == 1
  assert chosen(cut_from(4, 9), many, num_passages=3, trivial_passage="allow")[0] == [
    [-1, 4, 9],
    [-1, 9, 4],
  ]


def test_queries_of_another_corpus_are_refused(many, cut_from):
  with pytest.raises(ValueError, match="num_from_batch=2, but no query of the batch was cut from"):
    chosen(cut_from(None, None), many, num_passages=3)


def test_more_from_the_batch_than_are_read_is_refused():
  with pytest.raises(ValueError, match="num_from_batch=2 of num_passages=2; give at least 0 and f"):
    RetrievalConfig(num_passages=2, num_from_batch=2)


@pytest.mark.timeout(600)
def test_beside_a_reader_that_finds_answers_the_dual_encoder_learns_who_has_them(
  make_store, make_queries
):
  # Documents of two passages name the same two words, of which a query masks one; 16 words, in
  # pairs that do not repeat, tell the documents apart.
  words = [(5 + a, 13 + b) for a in range(8) for b in range(8)]
  bodies = [body for a, b in words for body in ([30, a, b], [31, b, a])]
  store = make_store(*(([], body) for body in bodies))
  config = RetrievalConfig(
    num_passages=4, num_from_batch=3, null_passage="mask", passage_length=8, joint_length=12
  )
  gatherer = Gatherer(store=store, config=config, neighbours=2)
  bert = BertConfig(
    dtype="float32", vocab_size=45, hidden_size=16, num_layers=1, num_heads=2, mlp_size=16
  )
  encoder = DualEncoder(
    DualEncoderConfig(
      bert=bert, towers="separate", pooling="mean", output="unit_length", projection_size=16
    )
  )

  def batch_of(random):
    documents = random.choice(len(words), 8, replace=False)
    rows = np.stack([2 * documents, 2 * documents + 1], axis=1).reshape(-1)
    queries = make_queries(*((bodies[row], 100 + row) for row in rows))
    return gatherer.gather(queries, gatherer.choose(queries)[0]), rows

  def figures(params, batch):
    scores_BxK = encoder.apply(
      {"params": params}, batch.queries.query, batch.passage, deterministic=True
    )
    # Predicts all words of the passage, and only them.
    logits_BxKxV = 10 * jax.nn.one_hot(batch.passage.ids, 45).sum(axis=2)
    logits_BxKxMxV = jnp.repeat(logits_BxKxV[:, :, None], 2, axis=2)
    return masked_lm_over_retrieval(scores_BxK, logits_BxKxMxV, batch, marginalize="span"), (
      scores_BxK
    )

  score = jax.jit(lambda params, batch: figures(params, batch)[1])

  def share_of_own_document_first(params):
    found = []
    for seed in range(20):
      batch, rows = batch_of(np.random.default_rng([1, seed]))
      scores_BxK = np.where(batch.valid_BxK, score(params, batch), -np.inf)
      first_B = np.take_along_axis(batch.passage_ids_BxK, scores_BxK.argmax(1)[:, None], 1)[:, 0]
      found.append(np.mean(first_B // 2 == rows // 2))
    return np.mean(found)

  @jax.jit
  def step(params, state, batch):
    gradients = jax.grad(lambda params: figures(params, batch)[0]["loss"].value)(params)
    updates, state = optimizer.update(gradients, state)
    return optax.apply_updates(params, updates), state

  batch, _ = batch_of(np.random.default_rng(0))
  params = encoder.init(jax.random.key(0), batch.queries.query, batch.passage, deterministic=True)[
    "params"
  ]
  optimizer = optax.adam(1e-2)
  state = optimizer.init(params)
  before = share_of_own_document_first(params)
  for seed in range(100):
    params, state = step(params, state, batch_of(np.random.default_rng([0, seed]))[0])
  after = share_of_own_document_first(params)
  assert before < 0.5 and after > 0.8
