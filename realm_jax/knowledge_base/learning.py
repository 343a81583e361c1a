"""What makes the searches of a knowledge base better: what ranks, and training on questions."""

import dataclasses
import functools
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from realm_jax.data.questions import Question
from realm_jax.evaluation import probes
from realm_jax.evaluation.probes import Choice
from realm_jax.foundations import progress
from realm_jax.knowledge_base import answerability, commits, models, tuning, use_memory
from realm_jax.knowledge_base.encoder import Encoder
from realm_jax.knowledge_base.evaluation import Search
from realm_jax.knowledge_base.folder import Folder
from realm_jax.knowledge_base.use_memory import Memory, PastQuestion

_ADAPTED, _TRAINED = "adapted", "trained"
_LAST_SHARE = 0.1  # of the time, to learn what is answerable
FEWEST = 100  # questions that were fed back, to train on


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
  """Remembers questions, and uses what learned from them if held-out ones find more answers.

  Raises:
    ValueError: If there is no passage, or questions are too few.
  """
  learned, asked = tuning.held_out(questions)
  start = folder.newest()
  settings = start.commit.settings
  if not start.num_passages:
    raise ValueError("there are no documents yet, in which questions could find answers")
  started = time.monotonic()
  if start.embed is not None:
    start = dataclasses.replace(start, embed=functools.cache(start.embed))
  before = folder.memory.newest().records
  records = {}
  for question in progress.track([*learned, *asked], what="questions to remember"):
    past = PastQuestion(
      question=question.text, answers=question.answers, regex=question.regex, time=time.time()
    )
    past = use_memory.answered(start, past)
    records[past.key] = past.after(before.get(past.key))
  keys = {PastQuestion(question=question.text).key for question in asked}
  known = {**before, **records}
  known = {key: past for key, past in known.items() if key not in keys}

  adapter = encoder = None
  candidates = {tuning.START: start}
  if start.embed is not None:
    adapter = tuning.adapt(start, learned, seconds=seconds / 3)
    if adapter is not None:
      candidates[_ADAPTED] = dataclasses.replace(start, adapt=adapter)
    given = folder.encoder(settings.encoder)
    if isinstance(given, Encoder):  # one from elsewhere has no tower to train
      left = seconds - (time.monotonic() - started)
      encoder = tuning.tune(given, start, learned, seconds=left - _LAST_SHARE * seconds)
      candidates[_TRAINED] = dataclasses.replace(start, embed=encoder.question, adapt=None)
  searches: dict[str, Search] = {"without memory": start.search}
  for name, snapshot in candidates.items():
    # Its own, because past questions are embedded as this candidate does.
    search = functools.partial(snapshot.search, memory=Memory(known, {}))
    for end, ranking in tuning.RANKINGS.items():
      searches |= {name + end: functools.partial(search, by=ranking)}
    if name == tuning.START:
      searches = {"without memory": start.search, name: search}
  choice = tuning.compare(searches, asked)
  chosen, _, _ = choice.chosen.partition(",")
  ranking = settings.ranking
  if chosen != tuning.START:
    ranking = tuning.RANKINGS[choice.chosen.removeprefix(chosen)]
  # Scores of questions that an adapter or a tower learned from are too good.
  unseen = [*learned, *asked] if chosen == tuning.START else asked
  ranks = dataclasses.replace(start.commit, settings=dataclasses.replace(settings, ranking=ranking))
  ranks = dataclasses.replace(candidates[chosen], commit=ranks)
  left = max(seconds - (time.monotonic() - started), _LAST_SHARE * seconds)
  remembered = Memory({**before, **records}, {})
  model = answerability.learn(ranks, unseen, memory=remembered, seconds=left)
  with folder.exclusively() as edit:
    if edit.settings.encoder != settings.encoder:
      raise ValueError(f"{folder.path} got another encoder while this one was trained")
    if chosen == _ADAPTED and adapter is not None:
      edit.settings = dataclasses.replace(edit.settings, adapter=adapter.write(folder.path))
    if chosen == _TRAINED and encoder is not None:
      name = models.write_encoder(folder.path, encoder)
      edit.settings = dataclasses.replace(edit.settings, adapter="", encoder=name)
    if chosen != tuning.START:
      edit.settings = dataclasses.replace(edit.settings, ranking=ranking)
    embed, name = candidates[chosen].embed, edit.settings.encoder
    known_by = ""
    if model is not None:
      used = {"encoder": name, "adapter": edit.settings.adapter}
      known_by = dataclasses.replace(model, **used).write(folder.path)
    edit.settings = dataclasses.replace(edit.settings, answerability=known_by)
    folder.memory.write(
      past if embed is None else past.with_embedding(name, embed(past.question))
      for past in records.values()
    )
  return choice
