"""Reads answers out of the passages that a knowledge base finds."""

import functools
import os
import threading
from collections.abc import Sequence

import jax
import numpy as np

from realm_jax.answering.editable_corpus import EditableCorpus
from realm_jax.answering.open_answerer import question_model
from realm_jax.answering.question_answerer import QuestionAnswerer, SpanAnswer
from realm_jax.checkpoints import saved_models
from realm_jax.corpus.tokenized_passages import TokenizedPassages
from realm_jax.devices import partitioning
from realm_jax.index.exact_searcher import ExactSearcher
from realm_jax.knowledge_base.commits import CHECKPOINTS, VOCABULARY
from realm_jax.knowledge_base.hits import Hit
from realm_jax.models.encoder_programs import passage_encoder_program
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.retrieval.joint_inputs import passage_tokens
from realm_jax.text import tokenization


class Reader:
  """The span reader in a folder of models, on one device.

  Attributes:
    num_read: Passages that it reads.
  """

  def __init__(self, path: str):
    saved = saved_models.load(os.path.join(path, CHECKPOINTS))
    mesh = partitioning.make_mesh(devices=jax.local_devices()[:1])
    _, params = saved.open_qa_model(mesh)
    place = functools.partial(jax.device_put, device=partitioning.sharding(mesh))
    self._model = question_model(saved.description, params=params, put_on_devices=place)
    self._embed = passage_encoder_program(saved.description.dual_encoder, mesh)
    self._length = saved.description.passage_length
    self._tokenizer = tokenization.load_text_tokenizer(os.path.join(path, VOCABULARY))
    self.num_read = self._model.beam.num_read

  def answer(self, question: str, hits: Sequence[Hit]) -> SpanAnswer | None:
    """Returns the best span of passages, with their places as ids; None if there is none."""
    passages = TokenizedPassages(
      [(hit.title, hit.text) for hit in hits], tokenizer=self._tokenizer, max_length=self._length
    )
    # Always as many, because each number is a program to compile; the others are empty.
    rows = np.arange(self.num_read)
    tokens = passage_tokens(passages, np.where(rows < len(hits), rows, -1), length=self._length)
    embeddings_NxE = np.asarray(self._embed(self._model.params["dual_encoder"], tokens))
    embeddings_NxE = embeddings_NxE[: len(hits)]
    loaded = LoadedGeneration(
      generation=0,
      searcher=ExactSearcher(embeddings_NxE),
      training_step=0,
      created=0.0,
      embeddings_NxE=embeddings_NxE,
    )
    corpus = EditableCorpus(
      store=passages, loaded=loaded, tokenizer=self._tokenizer, passage_length=self._length
    )
    (found,) = QuestionAnswerer(self._model, corpus, batch_size=1).answer([question])
    return found.answers[0] if found.answers else None


_opening = threading.Lock()  # so that threads do not each load the same one
_opened = functools.lru_cache(maxsize=4)(Reader)


def open_reader(path: str) -> Reader:
  """Opens a reader, once in a process."""
  with _opening:
    return _opened(path)
