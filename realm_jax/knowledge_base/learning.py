"""What makes the searches of a knowledge base better: what ranks, and training on questions.

An adapter and the query tower of an encoder are trained with the loss of ORQA's retriever (Lee et
al. 2019): -log of the share of passages with an answer in the softmax over passages that the
encoder ranks best. Passages keep their tower, so no embedding of a knowledge base changes.
"""

import dataclasses
import functools
import os
import random
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from realm_jax.data.answers import occurs
from realm_jax.data.questions import Question
from realm_jax.evaluation import probes, resampling
from realm_jax.evaluation.probes import Choice
from realm_jax.foundations import progress
from realm_jax.knowledge_base import commits, models, use_memory
from realm_jax.knowledge_base.commits import Ranking
from realm_jax.knowledge_base.evaluation import Search, found_answers
from realm_jax.knowledge_base.folder import Folder
from realm_jax.knowledge_base.learned import Adapter, learn_answerability
from realm_jax.knowledge_base.models import Encoder
from realm_jax.knowledge_base.snapshot import Snapshot
from realm_jax.knowledge_base.use_memory import Memory, PastQuestion
from realm_jax.models.encoder import EncoderConfig, query_encoder_program
from realm_jax.objectives.marginal_likelihood import marginal_log_likelihood
from realm_jax.training.optimizer import OptimizerConfig, make_optimizer

FEWEST, _MOST_HELD_OUT = 100, 500  # questions to train on, of which a fifth is held out
_START, _ADAPTED, _TRAINED = "start", "adapted", "trained"
_FIGURE = "recall@5"  # that has to rise
_RANKINGS: Mapping[str, Ranking] = {"": "encoder", ", fused": "fused"}  # by the end of a name
_LAST_SHARE = 0.1  # of the time, to learn what is answerable
_BATCH, _BEAM, _EPOCHS = 16, 500, 2
_LENGTH_STEP = 16
_LOWEST = jnp.finfo(jnp.float32).min  # whose gradient is zero also where nothing is right
_OPTIMIZER = OptimizerConfig(name="adamw", learning_rate=1.5e-4)
_ADAPTER_OPTIMIZER = OptimizerConfig(
  name="adamw", learning_rate=3e-3, warmup_steps=0, schedule="constant"
)
_CANDIDATES, _POOL, _ADAPTER_BATCH, _ADAPTER_EPOCHS = 200, 20_000, 64, 5
_TEMPERATURE = 0.05  # of scores from -1 to 1, unless the encoder was trained with its own


def choose_ranking(folder: Folder, *, create: Callable[..., Any]) -> Choice:
  """Chooses between words, the encoder and both by titles and sentences of the documents.

  Args:
    create: Makes another knowledge base; see `KnowledgeBase.create`.
  """
  snapshot = folder.newest()
  settings = snapshot.commit.settings
  encoder = folder.encoder(settings.encoder)
  if isinstance(encoder, Encoder):
    encoder = commits.model_path(folder.path, settings.encoder)
  documents = map(snapshot.document, snapshot.documents(slice(None)))
  made = probes.make(documents, language=snapshot.languages[0])
  with tempfile.TemporaryDirectory() as temporary:
    path = os.path.join(temporary, "kb")
    create(
      path,
      [{"id": document.id, "text": document.text} for document in made.documents],
      language=settings.languages,
      passage_words=settings.passage_words,
      encoder=encoder,
    )
    searched = Folder(path, encoder=None if isinstance(encoder, str) else encoder).newest()
    choice = probes.choose(
      {
        ranking: functools.partial(searched.document_ids, by=ranking)
        for ranking in commits.RANKINGS
      },
      made.queries,
      start=settings.ranking,
    )
  with folder.exclusively() as edit:
    edit.settings = dataclasses.replace(edit.settings, ranking=choice.chosen)
  return choice


def fed_back(folder: Folder) -> list[Question]:
  """Returns the past questions that something was useful for; that is an answer like any other."""
  snapshot, questions = folder.newest(), []
  for past in folder.memory.newest().records.values():
    texts = [snapshot.hit(row).text for row in use_memory.rows(snapshot, past.useful)]
    answers = (*past.answers, *(map(re.escape, texts) if past.regex else texts))
    if answers:
      questions.append(Question(id="", text=past.question, answers=answers, regex=past.regex))
  return questions


def train(folder: Folder, questions: Sequence[Question], *, seconds: float) -> Choice:
  """Remembers questions, and uses what learned from them if held-out ones find more answers."""
  learned, asked = _held_out(questions)
  start = folder.newest()
  settings = start.commit.settings
  if not start.num_passages:
    raise ValueError("there are no documents yet, in which questions could find answers")
  started = time.monotonic()
  if start.embed is not None:
    start = dataclasses.replace(start, embed=functools.cache(start.embed))
  before = folder.memory.newest().records
  new = {}
  for question in progress.track([*learned, *asked], what="questions to remember"):
    past = PastQuestion(
      question=question.text, answers=question.answers, regex=question.regex, time=time.time()
    )
    past = use_memory.answered(start, past)
    new[past.key] = past.after(before.get(past.key))
  records = {**before, **new}
  keys = {PastQuestion(question=question.text).key for question in asked}
  known = {key: past for key, past in records.items() if key not in keys}

  adapter = encoder = None
  candidates = {_START: start}
  if start.embed is not None:
    adapter = adapt(start, learned, seconds=seconds / 3)
    if adapter is not None:
      candidates[_ADAPTED] = dataclasses.replace(start, adapt=adapter)
    given = folder.encoder(settings.encoder)
    if isinstance(given, Encoder):  # one from elsewhere has no tower to train
      left = seconds - (time.monotonic() - started)
      encoder = tune(given, start, learned, seconds=left - _LAST_SHARE * seconds)
      candidates[_TRAINED] = dataclasses.replace(start, embed=encoder.question, adapt=None)
  searches: dict[str, Search] = {"without memory": start.search}
  for name, snapshot in candidates.items():
    # Its own, because past questions are embedded as this candidate does.
    search = functools.partial(snapshot.search, memory=Memory(known, {}))
    rankings = {"": None} if name == _START else _RANKINGS
    searches |= {name + end: functools.partial(search, by=by) for end, by in rankings.items()}
  choice = _compare(searches, asked)
  chosen, _, _ = choice.chosen.partition(",")
  ranking = settings.ranking
  if chosen != _START:
    ranking = _RANKINGS[choice.chosen.removeprefix(chosen)]
  # Scores of questions that an adapter or a tower learned from are too good.
  unseen = [*learned, *asked] if chosen == _START else asked
  ranks = dataclasses.replace(start.commit, settings=dataclasses.replace(settings, ranking=ranking))
  ranks = dataclasses.replace(candidates[chosen], commit=ranks)
  left = max(seconds - (time.monotonic() - started), _LAST_SHARE * seconds)
  model = learn_answerability(ranks, unseen, memory=Memory(records, {}), seconds=left)
  with folder.exclusively() as edit:
    if edit.settings.encoder != settings.encoder:
      raise ValueError(f"{folder.path} got another encoder while this one was trained")
    changes = {} if chosen == _START else {"ranking": ranking}
    if chosen == _ADAPTED and adapter is not None:
      changes["adapter"] = adapter.write(folder.path)
    if chosen == _TRAINED and encoder is not None:
      changes |= {"adapter": "", "encoder": models.write_encoder(folder.path, encoder)}
    used = dataclasses.replace(edit.settings, answerability="", **changes)
    if model is not None:
      model = dataclasses.replace(model, encoder=used.encoder, adapter=used.adapter)
      used = dataclasses.replace(used, answerability=model.write(folder.path))
    edit.settings, embed = used, candidates[chosen].embed
    folder.memory.write(
      past if embed is None else past.with_embedding(used.encoder, embed(past.question))
      for past in new.values()
    )
  return choice


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

  A question without an answer among its best passages, or with answers in all of them, is left out.
  """
  started = time.monotonic()
  assert snapshot.embed is not None, "there is an encoder"
  rows_N = np.flatnonzero(snapshot.live_N)
  learned, found, right = [], [], []
  for question in progress.track(questions, what="questions"):
    if time.monotonic() - started > seconds / 2:
      break
    question_E = snapshot.embed(question.text)
    rows, _ = snapshot.best(question.text, _CANDIDATES, by="encoder", question_E=question_E)
    answers = [
      occurs(snapshot.hit(row).text, question.answers, regex=question.regex)
      for row in rows.tolist()
    ]
    if any(answers) and not all(answers):
      learned.append(question_E)
      found.append(rows)
      right.append(rows[answers])
  logging.info("%d of %d questions have an answer among the best", len(learned), len(questions))
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


def _held_out(questions: Sequence[Question]) -> tuple[list[Question], list[Question]]:
  """Returns questions to learn from, and others to compare by; always the same ones."""
  if len(questions) < FEWEST:
    raise ValueError(
      f"{len(questions)} questions are too few to learn from some and to compare by a fifth; give "
      f"at least {FEWEST}, better thousands"
    )
  number = min(_MOST_HELD_OUT, len(questions) // 5)
  mixed = random.Random(0).sample(questions, len(questions))
  return mixed[number:], mixed[:number]


def _compare(searches: Mapping[str, Search], questions: Sequence[Question]) -> Choice:
  """Chooses the search that finds most answers among five passages, if more than the first one."""
  scores = {name: found_answers(search, questions) for name, search in searches.items()}
  before = scores[_START]
  compared = {
    name: {figure: resampling.compare(values, before[figure]) for figure, values in of.items()}
    for name, of in scores.items()
    if name != _START
  }
  better = [name for name in compared if compared[name][_FIGURE].interval[0] > 0]
  return Choice(
    chosen=max(better, key=lambda name: compared[name][_FIGURE].difference, default=_START),
    means={
      name: {figure: float(values.mean()) for figure, values in of.items()}
      for name, of in scores.items()
    },
    comparisons=compared,
  )
