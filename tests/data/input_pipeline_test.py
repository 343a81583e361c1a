import numpy as np
import pytest
import tensorflow as tf

from realm_jax.corpus import tagged_examples
from realm_jax.corpus.passage_store import Passage
from realm_jax.data.batches import Shard, Streams, masked_queries
from realm_jax.data.input_pipeline import BatchIterator, task_batches
from realm_jax.data.preprocessors import join_title_and_body
from realm_jax.tasks import salient_span_masking
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

WORDS = tuple(f"w{a}{b}" for a in "abcdef" for b in "abcde")
LENGTHS = {"query": 8, "mlm_positions": 2, "mlm_targets": 2}
NUM_PASSAGES = 22


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  """Passages of two sentences with two spans each; every tenth passage has none."""
  directory = tmp_path_factory.mktemp("odd-name é") / "corpus"  # SeqIO allows no such task name
  directory.mkdir()
  tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, *WORDS, "."])
  tokenizer.save(directory / "vocabulary")
  writer = tagged_examples.TaggedExampleWriter(directory, num_shards=3)
  for i in range(NUM_PASSAGES):
    a, b = WORDS[i], WORDS[i + 1]
    sentence = f"{a} {b} wae ."
    text = f"{sentence} {sentence}"
    ends = [(0, len(sentence)), (len(sentence) + 1, len(text))]
    spans = [(s, s + 3) for start, _ in ends for s in (start, start + 4)]
    passage = Passage(
      title=a, text=text, uid=i + 1, sentences=ends, spans=[] if i % 10 == 9 else spans
    )
    writer.write(tagged_examples.serialize(passage))
  writer.close()
  return directory


def masked(corpus, *, training, mask="salient_span", seed=0, batch_size=4, shard=None):
  return task_batches(
    salient_span_masking.register(
      corpus=str(corpus), vocabulary=str(corpus / "vocabulary"), mask=mask
    ),
    lengths=LENGTHS,
    batch_size=batch_size,
    seed=seed,
    training=training,
    shard=shard,
  )


def assert_equal_batches(found, expected):
  assert found.keys() == expected.keys()
  for name in expected:
    np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


@pytest.mark.parametrize(("mask", "taken"), [("salient_span", 7), ("random_token", 0)])
def test_a_restored_iterator_goes_on_where_the_saved_one_was(corpus, mask, taken):
  batches = masked(corpus, training=True, mask=mask)
  for _ in range(taken):
    next(batches)
  position = batches.position()
  assert all(value.dtype == np.uint8 for value in position.values())
  expected = [next(batches) for _ in range(8)]
  restored = masked(corpus, training=True, mask=mask)
  restored.restore(position)
  for batch in expected:
    assert_equal_batches(next(restored), batch)


@pytest.fixture(scope="module")
def seen(corpus):
  """The first 150 training batches of seed 0."""
  batches = masked(corpus, training=True)
  return [next(batches) for _ in range(150)]


def test_training_goes_over_the_corpus_again_and_again_with_other_masks(seen):
  assert all(batch["query"].shape == (4, 8) for batch in seen)
  uids = np.concatenate([batch["source_uid"][:, 0] for batch in seen])
  assert sorted(set(uids.tolist())) == [i for i in range(1, NUM_PASSAGES + 1) if i % 10 != 0]
  queries = np.concatenate([batch["query"] for batch in seen])
  assert len(np.unique(queries[uids == 1], axis=0)) == 2  # one of two words, in equal sentences
  # Two of 22 passages have no span; up to 1,000 examples wait to be shuffled.
  no_span, *others = seen[-1]["rejections"].max(axis=0).tolist()
  assert 600 * 2 / 20 <= no_span <= (600 + 1000) * 2 / 20
  assert others == [0, 0]


def test_the_seed_decides_order_and_masks(corpus, seen):
  # Every pipeline that is opened costs more than all the rest of this file.
  same, other = (next(masked(corpus, training=True, seed=seed)) for seed in (0, 1))
  assert_equal_batches(same, seen[0])
  assert other["source_uid"].tolist() != seen[0]["source_uid"].tolist()


@pytest.mark.parametrize("mask", ["random_span", "random_token"])
def test_streams_draw_numbers_of_their_own(corpus, mask):
  """All sentences have as many wordpieces, so equal draws would be equal masks."""
  streams = [masked(corpus, training=True, mask=mask, shard=Shard(i, 2)) for i in range(2)]
  one, other = (
    np.concatenate([next(batches)["mlm_positions"] for _ in range(25)]) for batches in streams
  )
  assert (one == other).all(axis=1).mean() < 0.5


def test_a_corpus_that_gives_no_example_is_refused(tmp_path):
  tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, *WORDS, "."])
  tokenizer.save(tmp_path / "vocabulary")
  writer = tagged_examples.TaggedExampleWriter(tmp_path, num_shards=2)
  passage = Passage(title="waa", text="waa .", uid=1, sentences=[(0, 5)], spans=[])
  writer.write(tagged_examples.serialize(passage))
  writer.close()
  with pytest.raises(ValueError, match=r"salient_span_masking\w+ yields no examples: its corpus"):
    masked(tmp_path, training=True)
  assert list(masked(tmp_path, training=False)) == []


def test_evaluation_is_one_pass_in_a_fixed_order_filled_up_with_no_weight(corpus):
  first, second = (list(masked(corpus, training=False, batch_size=8)) for _ in range(2))
  for one, other in zip(first, second, strict=True):
    assert_equal_batches(one, other)
  assert [batch["query"].shape for batch in first] == [(8, 8)] * 3
  uids = np.concatenate([batch["source_uid"][:, 0] for batch in first])
  assert uids[:20].tolist() != sorted(uids[:20].tolist())  # the order on disk is a random one
  assert sorted(uids[:20].tolist()) == [i for i in range(1, 23) if i % 10 != 0]
  assert uids[20:].tolist() == [0] * 4
  assert (first[-1]["mlm_weights"][:4].sum(axis=1) == 1).all()
  for name, value in first[-1].items():
    assert not value[4:].any(), name


def streams(*, num_streams, batch_size=4):
  """Batches of the numbers from 0 to 99; a stream takes every `num_streams`-th."""

  def open_stream(*, batch_size, shard):
    numbers = tf.data.Dataset.range(100)
    if shard is not None:
      numbers = numbers.shard(shard.num_shards, shard.index)
    return BatchIterator(numbers.map(lambda i: {"number": i}).batch(batch_size))

  return Streams(open_stream, num_streams=num_streams, batch_size=batch_size)


def test_streams_read_their_parts_side_by_side_and_go_on_where_they_were():
  assert next(streams(num_streams=None))["number"].tolist() == [0, 1, 2, 3]
  batches = streams(num_streams=2)
  assert batches.num_own == 2
  assert next(batches)["number"].tolist() == [0, 2, 1, 3]
  position = batches.position()
  assert next(batches)["number"].tolist() == [4, 6, 5, 7]
  restored = streams(num_streams=2)
  restored.restore(position)
  assert next(restored)["number"].tolist() == [4, 6, 5, 7]
  with pytest.raises(
    ValueError, match="its data as stream_0_of_2, .* reads stream_0_of_1; use the"
  ):
    streams(num_streams=1).restore(position)


@pytest.mark.parametrize(
  ("examples", "message"),
  [
    (3, "no examples for stream 3 of 4; there are enough for data_streams=2"),
    (0, "no examples for stream 0 of 4"),
  ],
)
def test_fewer_examples_than_streams_are_refused_with_a_number_that_would_do(
  tmp_path, examples, message
):
  tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, *WORDS, "."])
  tokenizer.save(tmp_path / "vocabulary")
  writer = tagged_examples.TaggedExampleWriter(tmp_path, num_shards=1)
  for i in range(max(1, examples)):
    spans = [(0, 3)] if examples else []
    passage = Passage(title="w", text="waa .", uid=i + 1, sentences=[(0, 5)], spans=spans)
    writer.write(tagged_examples.serialize(passage))
  writer.close()

  def open_stream(*, batch_size, shard):
    return masked(tmp_path, training=True, batch_size=batch_size, shard=shard)

  with pytest.raises(ValueError) as error:
    Streams(open_stream, num_streams=4, batch_size=8)
  assert str(error.value).endswith(message)


def int32(*values):
  return tf.constant(values, tf.int32)


def test_masked_queries_become_a_batch():
  features = {
    "query": np.int32([[2, 7, 4, 3, 0, 0]]),
    "mlm_positions": np.int32([[2, 0, 0]]),
    "mlm_targets": np.int32([[8, 0, 0]]),
    "mlm_weights": np.float32([[1, 0, 0]]),
    "source_uid": np.int64([[2**62]]),
  }
  batch = masked_queries(features)
  assert batch.query.ids.tolist() == [[2, 7, 4, 3, 0, 0]]
  assert batch.query.mask.tolist() == [[True] * 4 + [False] * 2]
  assert batch.query.segments.tolist() == [[0] * 6]
  assert batch.mlm_weights_BxM.tolist() == [[1, 0, 0]]
  assert batch.source_uid_B.tolist() == [2**62]


@pytest.mark.parametrize(
  ("title", "body", "passage", "segments"),
  [
    ([5], [6, 7], [2, 5, 3, 6, 7, 3, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0]),
    ([], [6], [2, 3, 6, 3, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0, 0]),
    ([5], [6, 7, 8, 9, 10, 11], [2, 5, 3, 6, 7, 8, 9, 3], [0, 0, 0, 1, 1, 1, 1, 1]),
    # Any title leaves a quarter of the passage to the body, if the body needs it.
    ([5, 5, 5, 5, 5, 5, 5], [6], [2, 5, 5, 5, 5, 3, 6, 3], [0, 0, 0, 0, 0, 0, 1, 1]),
    ([5, 5, 5, 5, 5, 5, 5], [6, 7, 8], [2, 5, 5, 5, 3, 6, 7, 3], [0, 0, 0, 0, 0, 1, 1, 1]),
  ],
)
def test_title_and_body_become_a_passage(title, body, passage, segments):
  example = {
    "query": int32(2, 9, 3),
    "title": int32(*title),
    "body": int32(*body),
    "uid": tf.constant(2**62, tf.int64),
  }
  pairs = join_title_and_body(
    tf.data.Dataset.from_tensors(example),
    {"query": 5, "passage": 8},
    tokenizer=WordPieceTokenizer(SPECIAL_TOKENS),
  )
  (features,) = pairs.as_numpy_iterator()
  assert features["passage_uid"].tolist() == [2**62]
  assert features["query"].tolist() == [2, 9, 3, 0, 0]
  assert features["passage"].tolist() == passage
  assert features["passage_segments"].tolist() == segments
