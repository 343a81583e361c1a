import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.devices import datatypes
from realm_jax.models import open_qa
from tests.configurations import tiny_bert

BERT = tiny_bert(vocab_size=20, initializer_range=0.5)
CONFIG = open_qa.SpanReaderConfig(bert=BERT, max_span_width=3, span_hidden_size=6)
LOWEST = np.finfo(np.float32).min


def joint(*rows, length=9):
  """Rows of (question length, passage length): [CLS] x [SEP] z [SEP]."""
  random = np.random.default_rng(0)
  columns = np.arange(length)
  questions, passages = np.array(rows).T[..., None]
  ends = questions + 2 + passages
  mask = columns <= ends
  return datatypes.Tokens(
    ids=np.where(mask, random.integers(5, 20, mask.shape), 0).astype(np.int32),
    mask=mask,
    segments=((columns >= questions + 2) & mask).astype(np.int32),
  )


@pytest.fixture(scope="module")
def params():
  init = functools.partial(open_qa.SpanReader(CONFIG).init, deterministic=True)
  return nn.unbox(jax.jit(init)(jax.random.key(0), joint((1, 3)))["params"])


@functools.partial(jax.jit, static_argnames="module")
def apply(module, params, tokens):
  return module.apply({"params": params}, tokens, deterministic=True)


def logits_of(params, tokens, config=CONFIG):
  return np.asarray(apply(open_qa.SpanReader(config), params, tokens))


def test_spans_lie_wholly_in_the_passage(params):
  logits_FxTxW = logits_of(params, joint((1, 4), (3, 2), (2, 0)))
  for row, (question, passage) in enumerate([(1, 4), (3, 2), (2, 0)]):
    first = question + 2
    for start, width in np.ndindex(9, 3):
      inside = first <= start and start + width < first + passage
      assert (logits_FxTxW[row, start, width] > LOWEST) == inside, (row, start, width)


@pytest.mark.parametrize("size", [0, 6])
def test_scores_are_as_fine_as_float32_where_products_are_not(size):
  """Rounded to bfloat16, the scores of several spans were equal, and the first of them won."""
  coarse = dataclasses.replace(BERT, dtype="bfloat16")
  config = dataclasses.replace(CONFIG, bert=coarse, span_hidden_size=size)
  tokens = joint((1, 4), (3, 2))
  made = open_qa.SpanReader(config).init(jax.random.key(0), tokens, deterministic=True)["params"]
  logits_FxTxW = logits_of(nn.unbox(made), tokens, config)
  scores_S = logits_FxTxW[logits_FxTxW > LOWEST]
  rounded_S = np.asarray(jnp.asarray(scores_S).astype(jnp.bfloat16).astype(jnp.float32))
  assert (scores_S != rounded_S).mean() > 0.8
