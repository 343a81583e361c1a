"""Trains what embeds questions: an adapter of their embeddings, or the encoder's own query tower.

Both are trained with the loss of ORQA's retriever (Lee et al. 2019): -log of the share of passages
with an answer in the softmax over passages that the encoder ranks best. An answer that many of them
have, such as a profession, is no evidence that one of them is right, so such questions are left
out. Passages keep their tower, so no embedding of a knowledge base changes.
"""

import functools
import random
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from realm_jax.data.answers import occurs
from realm_jax.data.questions import Question
from realm_jax.foundations import progress
from realm_jax.knowledge_base.encoders.models import Encoder
from realm_jax.knowledge_base.learning.adapter import Adapter, compared
from realm_jax.knowledge_base.store.snapshot import Snapshot
from realm_jax.models.encoder import EncoderConfig, query_encoder_program
from realm_jax.objectives.marginal_likelihood import marginal_log_likelihood
from realm_jax.training.run.optimizer import OptimizerConfig, make_optimizer

_BATCH, _BEAM, _EPOCHS = 16, 500, 2
_LENGTH_STEP = 16
_LOWEST = jnp.finfo(jnp.float32).min  # whose gradient is zero also where nothing is right
_OPTIMIZER = OptimizerConfig(name="adamw", learning_rate=1.5e-4)
_ADAPTER_OPTIMIZER = OptimizerConfig(
  name="adamw", learning_rate=3e-3, warmup_steps=0, schedule="constant"
)
_COMMON = 30  # passages of the best, above which an answer says nothing
_CANDIDATES, _POOL, _ADAPTER_BATCH, _ADAPTER_EPOCHS = 200, 20_000, 64, 5
_TEMPERATURE = 0.05  # of scores from -1 to 1, unless the encoder was trained with its own


def tune(
  encoder: Encoder, snapshot: Snapshot, questions: Sequence[Question], *, seconds: float
) -> Encoder:
  """Returns the encoder with another query tower."""
  config, copies = encoder.description.dual_encoder.separated()
  params = {here: encoder.params[there] for here, there in copies.items()}
  trained = config.params_of("query", params)
  optimizer = make_optimizer(_OPTIMIZER, num_steps=-(-_EPOCHS * len(questions) // _BATCH))
  state = optimizer.init(trained)
  encode, step = query_encoder_program(config), _program(config, optimizer)
  text = functools.cache(lambda passage: snapshot.hit(passage).text)
  rows_N = np.flatnonzero(snapshot.live_N)
  embeddings_NxE = np.concatenate([segment.embeddings() for segment in snapshot.segments])[rows_N]
  beam = min(_BEAM, len(rows_N))
  draw, started = random.Random(0), time.monotonic()
  order = [q for _ in range(_EPOCHS) for q in draw.sample(questions, len(questions))]
  for first in progress.track(range(0, len(order), _BATCH), what="steps"):
    if time.monotonic() - started > seconds:
      break
    batch = order[first : first + _BATCH]
    query = encoder.queries([question.text for question in batch], size=_BATCH, step=_LENGTH_STEP)
    scores_BxN = np.asarray(encode(trained, query)) @ embeddings_NxE.T
    beam_BxR = np.argpartition(-scores_BxN, beam - 1, axis=1)[:, :beam]
    right_BxR = np.zeros(beam_BxR.shape, bool)  # none for what fills the last batch
    for right_R, beam_R, question in zip(right_BxR, rows_N[beam_BxR].tolist(), batch, strict=False):
      texts_R = map(text, beam_R)
      right_R[:] = [occurs(one, question.answers, regex=question.regex) for one in texts_R]
      right_R &= right_R.sum() <= _COMMON
    trained, state = step(trained, state, query, embeddings_NxE[beam_BxR], right_BxR)
  return encoder.replaced(config, {**params, **trained})


def _program(config: EncoderConfig, optimizer):
  """Returns the jitted step of the query's parameters and the optimizer's state."""
  module = config.make()
  scale = 1 / (
    _TEMPERATURE if config.unit_length and config.temperature == 1 else config.temperature
  )

  def loss(trained, query, embeddings_BxRxE, right_BxR):
    queries_BxE = module.apply(
      {"params": trained}, query, deterministic=True, method="encode_query"
    )
    return _loss(scale * jnp.einsum("BE,BRE->BR", queries_BxE, embeddings_BxRxE), right_BxR)

  @jax.jit
  def step(trained, state, query, embeddings_BxRxE, right_BxR):
    gradients = jax.grad(loss)(trained, query, embeddings_BxRxE, right_BxR)
    updates, state = optimizer.update(gradients, state, trained)
    return jax.tree.map(jnp.add, trained, updates), state

  return step


def _loss(logits_BxR: jax.Array, right_BxR: jax.Array) -> jax.Array:
  """Returns REALM's objective, if a passage with an answer has p(y|z) = 1 and no other has any."""
  log_p_B = marginal_log_likelihood(
    logits_BxR,
    jnp.where(right_BxR, 0.0, _LOWEST)[..., None],
    jnp.ones_like(logits_BxR[:, :1]),
    valid_BxK=jnp.ones_like(right_BxR),
    marginalize="span",
  )
  counted_B = jnp.any(right_BxR, axis=1)
  return -jnp.where(counted_B, log_p_B, 0).sum() / jnp.maximum(counted_B.sum(), 1)


def adapt(snapshot: Snapshot, questions: Sequence[Question], *, seconds: float) -> Adapter | None:
  """Returns an adapter of the embeddings of questions; None if no question can be learned from.

  A question without an answer among its best passages, or with answers in many, is left out.
  """
  started = time.monotonic()
  assert snapshot.embed is not None, "there is an encoder"
  rows_N = np.flatnonzero(snapshot.live_N)
  learned, found, right, common = [], [], [], 0
  for question in progress.track(questions, what="questions"):
    if time.monotonic() - started > seconds / 2:
      break
    question_E = snapshot.embed(question.text)
    compared_E = compared(snapshot, question_E)
    rows, *_ = snapshot.best(question.text, _CANDIDATES, by="encoder", question_E=compared_E)
    answers = [
      occurs(snapshot.hit(row).text, question.answers, regex=question.regex)
      for row in rows.tolist()
    ]
    common += sum(answers) > _COMMON
    if 0 < sum(answers) <= min(_COMMON, len(answers) - 1):
      learned.append(question_E)
      found.append(rows)
      right.append(rows[answers])
  logging.info(
    "%d of %d questions are learned from; %d have answers in more than %d of the best passages",
    len(learned),
    len(questions),
    common,
    _COMMON,
  )
  if not learned:
    return None
  draw = np.random.default_rng(0)
  pool = np.unique(np.concatenate([draw.permutation(rows_N)[:_POOL], *right]))
  embeddings_NxE = np.concatenate([segment.embeddings() for segment in snapshot.segments])[pool]
  questions_QxE = np.stack(learned)
  size = questions_QxE.shape[1]
  lengths = [np.linalg.norm(v, axis=1).mean() for v in (questions_QxE, embeddings_NxE)]
  scale = 1 / (_TEMPERATURE * lengths[0] * lengths[1])  # of cosines
  params = {"kernel": jnp.zeros((size, size)), "bias": jnp.zeros(size)}
  optimizer = make_optimizer(_ADAPTER_OPTIMIZER, num_steps=1)
  state = optimizer.init(params)

  @jax.jit
  def step(params, state, questions_BxE, right_BxN, embeddings_NxE):
    def loss(params):
      mapped_BxE = questions_BxE + questions_BxE @ params["kernel"] + params["bias"][None]
      norms = (jnp.linalg.norm(v, axis=1, keepdims=True) for v in (questions_BxE, mapped_BxE))
      return _loss(scale * (mapped_BxE * next(norms) / next(norms)) @ embeddings_NxE.T, right_BxN)

    updates, state = optimizer.update(jax.grad(loss)(params), state, params)
    return jax.tree.map(jnp.add, params, updates), state

  for _ in range(_ADAPTER_EPOCHS):
    order = draw.permutation(len(learned))
    for batch in (order[i : i + _ADAPTER_BATCH] for i in range(0, len(order), _ADAPTER_BATCH)):
      if time.monotonic() - started > seconds:
        break
      batch = np.resize(batch, min(_ADAPTER_BATCH, len(order)))  # one shape to compile
      right_BxN = np.stack([np.isin(pool, right[i]) for i in batch])
      params, state = step(params, state, questions_QxE[batch], right_BxN, embeddings_NxE)
  return Adapter(np.asarray(params["kernel"]), np.asarray(params["bias"]))
