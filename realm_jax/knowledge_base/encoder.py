"""Embeds passages and questions with the encoder of a knowledge base."""

import copy
import dataclasses
import functools
import os
import threading
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from realm_jax.checkpoints import saved_models
from realm_jax.corpus.tokenized_passages import TokenizedPassages
from realm_jax.data.questions import question_batches
from realm_jax.devices import partitioning
from realm_jax.devices.datatypes import Tokens
from realm_jax.foundations import progress
from realm_jax.knowledge_base.commits import CHECKPOINTS, VOCABULARY
from realm_jax.models.encoder import EncoderConfig
from realm_jax.models.encoder_programs import passage_encoder_program, query_encoder_program
from realm_jax.retrieval.passage_embedding import embed_passages, passage_batches
from realm_jax.text import tokenization, wordpieces

# Of a batch. Few, so that little is embedded in vain when one document is added; and the same for
# any number of documents, so that a passage has one embedding, whatever is embedded with it.
_WORDPIECES = 1152
_LENGTH_STEP = 64  # of questions; most have fewer wordpieces


class Encoder:
  """The encoder in a folder of models, on one device.

  Attributes:
    description: The model.
    vocabulary: That of its texts.
    params: Its parameters.
  """

  def __init__(self, path: str):
    saved = saved_models.load(os.path.join(path, CHECKPOINTS))
    mesh = partitioning.make_mesh(devices=jax.local_devices()[:1])
    _, params = saved.retriever(mesh)
    self.description, self.params = saved.description, params["dual_encoder"]
    self.vocabulary = wordpieces.load(os.path.join(path, VOCABULARY))
    self._tokenizer = tokenization.load_text_tokenizer(os.path.join(path, VOCABULARY))
    self._encode_passages = passage_encoder_program(self.description.dual_encoder, mesh)

  def replaced(self, config: EncoderConfig, params: Mapping) -> "Encoder":
    """Returns an encoder that embeds questions with other parameters, and passages as before."""
    other = copy.copy(self)
    other.description = dataclasses.replace(self.description, dual_encoder=config)
    other.params = dict(params)
    return other

  def passages(self, passages: Sequence[tuple[str, str]]) -> np.ndarray:
    """Returns the float32 embeddings `[N, E]` of titles and texts."""
    length = self.description.passage_length
    store = TokenizedPassages(passages, tokenizer=self._tokenizer, max_length=length)
    batches = passage_batches(store, passage_length=length, tokens_per_batch=_WORDPIECES)
    return embed_passages(
      progress.track(batches, what="passages", size=lambda batch: len(batch[0])),
      encoders=[functools.partial(self._encode_passages, self.params)],
      passages_N=np.arange(len(store)),
      embedding_size=self.description.dual_encoder.embedding_size,
      dtype=np.float32,
    )

  def question(self, text: str) -> np.ndarray:
    """Returns the float32 embedding `[E]` of a question; the end of a long one is not read."""
    encode = query_encoder_program(self.description.dual_encoder)
    return np.asarray(encode(self.params, self.queries([text], size=1)), np.float32)[0]

  def queries(self, texts: Sequence[str], *, size: int, step: int = _LENGTH_STEP) -> Tokens:
    """Returns at most `size` questions as `Tokens` `[size, L]`, padded to a multiple of `step`."""
    ((batch, _),) = question_batches(
      texts,
      tokenizer=self._tokenizer,
      query_length=self.description.query_length,
      batch_size=size,
    )
    length = -(-int(batch.query.mask.sum(axis=1).max()) // step) * step  # few, to compile
    return jax.tree.map(lambda leaf: leaf[:, :length], batch.query)


_opening = threading.Lock()  # so that threads do not each load the same one
_opened = functools.lru_cache(maxsize=4)(Encoder)


def open_encoder(path: str) -> Encoder:
  """Opens an encoder, once in a process."""
  with _opening:
    return _opened(path)
