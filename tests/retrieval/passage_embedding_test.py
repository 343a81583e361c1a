import numpy as np
import pytest

from realm_jax.devices.datatypes import Tokens
from realm_jax.retrieval.joint_inputs import passage_tokens
from realm_jax.retrieval.passage_embedding import embed_passages, passage_batches


@pytest.fixture(scope="module")
def long_store(make_store):
  lengths = np.random.default_rng(0).integers(0, 60, 150)
  return make_store(*(([5] * (n % 4), [6 + i % 30] * n) for i, n in enumerate(lengths)))


@pytest.mark.parametrize("multiple_of", [1, 8])
@pytest.mark.parametrize(("passage_length", "tokens_per_batch"), [(64, 512), (40, 300), (64, 1)])
def test_every_passage_comes_once_in_few_shapes(
  long_store, passage_length, tokens_per_batch, multiple_of
):
  batches = list(
    passage_batches(
      long_store,
      passage_length=passage_length,
      tokens_per_batch=tokens_per_batch,
      multiple_of=multiple_of,
    )
  )
  seen = np.concatenate([rows for rows, _ in batches])
  assert sorted(seen.tolist()) == list(range(150))
  shapes = {tokens.shape for _, tokens in batches}
  assert len(shapes) == len({length for _, length in shapes}) <= 4
  for rows, tokens in batches:
    size, length = tokens.shape
    assert size % multiple_of == 0 and len(rows) <= size
    assert size * length <= max(tokens_per_batch, multiple_of * length)
    whole = passage_tokens(long_store, rows, length=passage_length)
    np.testing.assert_array_equal(tokens.ids[: len(rows)], whole.ids[:, :length])
    assert not whole.mask[:, length:].any()
    # What fills up is no new passage.
    np.testing.assert_array_equal(
      tokens.ids[len(rows) :],
      np.broadcast_to(tokens.ids[len(rows) - 1], tokens.ids[len(rows) :].shape),
    )
    assert whole.mask[:, max(0, length - 16) :].any(axis=1).all()  # and no more padding than needed


def mean_of_ids(tokens: Tokens) -> np.ndarray:
  return np.stack([tokens.ids.sum(1), tokens.mask.sum(1)], axis=1).astype(np.float32)


def embed(store, *encoders, dtype=np.float32, batches=None):
  return embed_passages(
    passage_batches(store, passage_length=64, tokens_per_batch=500) if batches is None else batches,
    encoders=encoders,
    passages_N=np.arange(len(store)),
    embedding_size=2,
    dtype=dtype,
  )


@pytest.mark.parametrize("num_encoders", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_embeddings_are_in_the_order_of_the_rows(long_store, dtype, num_encoders):
  found = embed(long_store, *[mean_of_ids] * num_encoders, dtype=dtype)
  expected = mean_of_ids(passage_tokens(long_store, np.arange(150), length=64))
  assert found.dtype == dtype
  np.testing.assert_array_equal(found, expected.astype(dtype))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_are_refused(long_store, value):
  def encode(tokens):
    embeddings = mean_of_ids(tokens)
    embeddings[(tokens.ids == 9).any(axis=1), 1] = value
    return embeddings

  bodies, _ = long_store.body_ids(np.arange(150), length=60)
  (broken,) = np.nonzero((bodies == 9).any(axis=1))
  assert len(broken) > 1
  message = f"{len(broken)} of 150 passages have no finite .* first in row {broken[0]};"
  with pytest.raises(ValueError, match=message):
    embed(long_store, encode)
