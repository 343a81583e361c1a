"""What makes the searches of a knowledge base better: what ranks, and training on questions."""

import dataclasses
import functools
import os
import tempfile
import typing

from realm_jax.data.questions import read_questions
from realm_jax.evaluation import probes
from realm_jax.evaluation.probes import Choice
from realm_jax.knowledge_base import commits, folder, models, tuning

if typing.TYPE_CHECKING:
  from realm_jax.knowledge_base.knowledge_base import KnowledgeBase


def choose_ranking(base: "KnowledgeBase") -> Choice:
  """Chooses between words, the encoder and both by titles and sentences of the documents."""
  settings = base.commit.settings
  snapshot = base._folder.newest()
  documents = map(snapshot.document, snapshot.documents(slice(None)))
  made = probes.make(documents, language=snapshot.languages[0])
  with tempfile.TemporaryDirectory() as temporary:
    searched = type(base).create(
      os.path.join(temporary, "kb"),
      [{"id": document.id, "text": document.text} for document in made.documents],
      language=settings.languages,
      passage_words=settings.passage_words,
      encoder=commits.model_path(base.path, settings.encoder),
    )
    choice = probes.choose(
      {
        ranking: functools.partial(searched._folder.newest().document_ids, by=ranking)
        for ranking in typing.get_args(commits.Ranking)
      },
      made.queries,
      start=settings.ranking,
    )
  with base._folder.exclusively() as edit:
    edit.settings = dataclasses.replace(edit.settings, ranking=choice.chosen)
  return choice


def train_queries(base: "KnowledgeBase", path: str, *, seconds: float) -> Choice:
  """Trains the query tower on questions, and uses it if held-out ones find more answers.

  Raises:
    FileNotFoundError: If there are no such questions.
    ValueError: If there is no passage, or questions are too few.
  """
  learned, asked = tuning.held_out(read_questions(path))
  start = base._folder.newest()
  settings = start.commit.settings
  encoder = folder.encoder(base.path, settings.encoder)
  encoder = tuning.tune(encoder, start, learned, seconds=seconds)
  trained = dataclasses.replace(start, embed=encoder.question)
  choice = tuning.compare(start, trained, asked)
  if choice.chosen != tuning.START:
    with base._folder.exclusively() as edit:
      if edit.settings.encoder != settings.encoder:
        raise ValueError(f"{base.path} got another encoder while this one was trained")
      name = models.write_encoder(base.path, encoder)
      edit.settings = dataclasses.replace(
        edit.settings, encoder=name, ranking=tuning.RANKINGS[choice.chosen]
      )
  return choice
