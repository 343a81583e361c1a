"""Fine-tunes the query tower of a knowledge base's encoder on questions with known answers.

The loss of a question is that of ORQA's retriever (Lee et al. 2019): -log of the share of passages
with an answer in the softmax over the passages that the encoder ranks best at this step. Passages
keep their tower, so no embedding of a knowledge base changes.
"""

import functools
import random
import time
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.data.answers import occurs
from realm_jax.data.questions import Question
from realm_jax.evaluation import resampling
from realm_jax.evaluation.probes import Choice
from realm_jax.foundations import progress
from realm_jax.knowledge_base.commits import Ranking
from realm_jax.knowledge_base.encoder import Encoder
from realm_jax.knowledge_base.evaluation import found_answers
from realm_jax.knowledge_base.snapshot import Snapshot
from realm_jax.models.encoder import EncoderConfig
from realm_jax.models.encoder_programs import query_encoder_program
from realm_jax.training.optimizer import OptimizerConfig, make_optimizer

FIGURE = "recall@5"  # that has to rise
START = "start"
RANKINGS: Mapping[str, Ranking] = {"trained": "encoder", "trained, fused": "fused"}
_HELD_OUT, _FEWEST_HELD_OUT = 500, 20  # of the questions, a fifth, within these bounds
_BATCH, _BEAM, _EPOCHS = 16, 500, 2
_LENGTH_STEP = 16
_LOWEST = jnp.finfo(jnp.float32).min  # whose gradient is zero also where nothing is right
_OPTIMIZER = OptimizerConfig(name="adamw", learning_rate=1.5e-4)
_TEMPERATURE = 0.05  # of scores from -1 to 1, unless the encoder was trained with its own


def tune(
  encoder: Encoder, snapshot: Snapshot, questions: Sequence[Question], *, seconds: float
) -> Encoder:
  """Returns the encoder with another query tower.

  Args:
    snapshot: What the questions are asked of.
    seconds: When to stop, at the latest.

  Raises:
    ValueError: If there is no passage.
  """
  if not snapshot.num_passages:
    raise ValueError("there are no documents yet, in which questions could find answers")
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
    logits_BxR = scale * jnp.einsum("BE,BRE->BR", queries_BxE, embeddings_BxRxE)
    right_B = jax.nn.logsumexp(jnp.where(right_BxR, logits_BxR, _LOWEST), axis=1)
    counted_B = jnp.any(right_BxR, axis=1)
    losses_B = jax.nn.logsumexp(logits_BxR, axis=1) - jnp.where(counted_B, right_B, 0)
    return jnp.where(counted_B, losses_B, 0).sum() / jnp.maximum(counted_B.sum(), 1)

  @jax.jit
  def step(trained, state, query, embeddings_BxRxE, right_BxR):
    gradients = jax.grad(loss)(trained, query, embeddings_BxRxE, right_BxR)
    updates, state = optimizer.update(gradients, state, trained)
    return jax.tree.map(jnp.add, trained, updates), state

  return step


def held_out(questions: Sequence[Question]) -> tuple[list[Question], list[Question]]:
  """Returns questions to learn from, and others to compare by; always the same ones.

  Raises:
    ValueError: If there are too few.
  """
  number = min(_HELD_OUT, len(questions) // 5)
  if number < _FEWEST_HELD_OUT:
    raise ValueError(
      f"{len(questions)} questions are too few to learn from some and to compare by a fifth; give "
      f"at least {5 * _FEWEST_HELD_OUT}, better thousands"
    )
  mixed = random.Random(0).sample(questions, len(questions))
  return mixed[number:], mixed[:number]


def compare(start: Snapshot, trained: Snapshot, questions: Sequence[Question]) -> Choice:
  """Chooses the trained encoder, alone or fused with words, if it finds more answers.

  Returns:
    `START`, or that of `RANKINGS` which finds answers to more of the questions among five passages.
  """
  before = found_answers(start.search, questions)
  searches = {name: functools.partial(trained.search, by=by) for name, by in RANKINGS.items()}
  scores = {name: found_answers(search, questions) for name, search in searches.items()}
  compared = {
    name: {figure: resampling.compare(values, before[figure]) for figure, values in of.items()}
    for name, of in scores.items()
  }
  best = max(RANKINGS, key=lambda name: compared[name][FIGURE].difference)
  return Choice(
    chosen=best if compared[best][FIGURE].interval[0] > 0 else START,
    means={
      name: {figure: float(values.mean()) for figure, values in of.items()}
      for name, of in {START: before, **scores}.items()
    },
    comparisons=compared,
  )
