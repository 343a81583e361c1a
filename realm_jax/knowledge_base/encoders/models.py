"""The models of a knowledge base, encoder and reader: copied into its folder, opened and run."""

import copy
import dataclasses
import functools
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import jax
import numpy as np

from realm_jax.checkpoints import importing, orbax_files, saved_models
from realm_jax.checkpoints.formats import imported_model
from realm_jax.checkpoints.orbax_files import BEST
from realm_jax.checkpoints.saved_models import ModelDescription
from realm_jax.corpus.passage_store import TokenizedPassages
from realm_jax.data.question_batches import question_batches
from realm_jax.devices import partitioning
from realm_jax.devices.datatypes import Tokens
from realm_jax.foundations import hub, json_fields, object_store, progress
from realm_jax.knowledge_base.encoders.together import Together
from realm_jax.knowledge_base.store import commits
from realm_jax.knowledge_base.store.commits import CHECKPOINTS, VOCABULARY
from realm_jax.models.encoder import (
  EncoderConfig,
  passage_encoder_program,
  query_encoder_program,
)
from realm_jax.models.uniform_encoder import UniformEncoderConfig
from realm_jax.retrieval.passage_embedding import embed_passages, passage_batches
from realm_jax.retrieval.question_retriever import BeamConfig
from realm_jax.text import tokenization, wordpieces

if TYPE_CHECKING:
  from realm_jax.answering.span_reader import SpanReader

# Wordpieces that a model reads, unless it says it.
_LENGTHS = {"query_length": 64, "passage_length": 256}
# Of a batch. Few, so that little is embedded in vain when one document is added; and the same for
# any number of documents, so that a passage has one embedding, whatever is embedded with it.
_WORDPIECES = 1152
_LENGTH_STEP = 64  # of questions; most have fewer wordpieces
# Of questions that are asked: few programs to compile, and little padding. A batch of 8 questions
# takes twice to three times as long as one.
_QUESTION_LENGTHS, _TOGETHER = (16, 24, 32, 64, 128), 8
_LONG = 10**6  # a step that pads to the most that is read


class Encoder:
  """The encoder in a folder of models, on one device."""

  def __init__(self, path: str):
    saved = saved_models.load(os.path.join(path, CHECKPOINTS))
    mesh = partitioning.make_mesh(devices=jax.local_devices()[:1])
    _, params = saved.retriever(mesh)
    self.description, self.params = saved.description, params["dual_encoder"]
    self.vocabulary = wordpieces.load(os.path.join(path, VOCABULARY))
    self._tokenizer = tokenization.load_text_tokenizer(os.path.join(path, VOCABULARY))
    self._encode_passages = passage_encoder_program(self.description.dual_encoder, mesh)
    self._together = Together(self.questions, most=_TOGETHER)

  def replaced(self, config: EncoderConfig, params: Mapping) -> "Encoder":
    """Returns an encoder that embeds questions with other parameters, and passages as before."""
    other = copy.copy(self)
    other.description = dataclasses.replace(self.description, dual_encoder=config)
    other.params = dict(params)
    other._together = Together(other.questions, most=_TOGETHER)
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
    return self._together(text)

  def questions(self, texts: Sequence[str]) -> np.ndarray:
    """Returns the float32 embeddings `[N, E]` of at most 8 questions."""
    encode = query_encoder_program(self.description.dual_encoder)
    size = 1 if len(texts) == 1 else _TOGETHER
    batch = self.queries(texts, size=size, step=1)
    step = next((length for length in _QUESTION_LENGTHS if length >= batch.shape[1]), _LONG)
    batch = self.queries(texts, size=size, step=step)
    return np.asarray(encode(self.params, batch), np.float32)[: len(texts)]

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


def _reader(path: str) -> "SpanReader":
  """Returns the span reader in a folder of models, on one device."""
  from realm_jax.answering.open_answerer import question_model  # late, as searches need none
  from realm_jax.answering.span_reader import SpanReader

  saved = saved_models.load(os.path.join(path, CHECKPOINTS))
  mesh = partitioning.make_mesh(devices=jax.local_devices()[:1])
  _, params = saved.open_qa_model(mesh)
  place = functools.partial(jax.device_put, device=partitioning.sharding(mesh))
  embed = passage_encoder_program(saved.description.dual_encoder, mesh)
  return SpanReader(
    model=question_model(saved.description, params=params, put_on_devices=place),
    tokenizer=tokenization.load_text_tokenizer(os.path.join(path, VOCABULARY)),
    passage_length=saved.description.passage_length,
    embed_passage=functools.partial(embed, params["dual_encoder"]),
  )


Opened = TypeVar("Opened")


def _once(open: Callable[[str], Opened]) -> Callable[[str], Opened]:
  """Returns a function that opens a folder once in a process, so that no two threads do."""
  opening, opened = threading.Lock(), functools.lru_cache(maxsize=4)(open)

  def open_once(path: str) -> Opened:
    with opening, json_fields.named(path):
      return opened(path)

  return open_once


# Each has a lock of its own, because a search does not wait for a reader.
open_encoder, open_reader = _once(Encoder), _once(_reader)


@dataclasses.dataclass(frozen=True)
class _Model:
  description: ModelDescription
  params: dict
  vocabulary: wordpieces.WordPieces


def copy_model(directory: str, source: str | os.PathLike, *, reads: bool) -> str:
  """Copies an encoder or a reader into a knowledge base; returns its name there, a digest."""
  return _copy(directory, _found(os.path.normpath(hub.fetch(source).directory), reads=reads))


def write_encoder(directory: str, encoder: Encoder) -> str:
  """Writes an encoder into a knowledge base; returns its name there."""
  return _copy(
    directory, _Model(encoder.description, {"dual_encoder": encoder.params}, encoder.vocabulary)
  )


def _copy(directory: str, model: _Model) -> str:
  content = json.dumps(json_fields.as_json(model.description), sort_keys=True)
  content += saved_models.params_digest(model.params)

  def write(temporary: str) -> None:
    model.vocabulary.save(os.path.join(temporary, VOCABULARY))
    importing.write(os.path.join(temporary, CHECKPOINTS), model.description, model.params)

  return commits.write_model(directory, content.encode(), write=write)


def _found(source: str, *, reads: bool) -> _Model:
  if not object_store.absolute(source).exists():
    raise FileNotFoundError(
      f"no directory {source}; give that of a checkpoint or of a model of Hugging Face, or its "
      "OWNER/NAME on the hub, such as sentence-transformers/all-MiniLM-L6-v2"
    )
  with json_fields.named(source):
    for checkpoint in (source, os.path.join(source, BEST), os.path.join(source, CHECKPOINTS)):
      if orbax_files.steps(checkpoint):
        return _saved(source, checkpoint, reads=reads)
    return _imported(source, reads=reads)


def _saved(source: str, checkpoint: str, *, reads: bool) -> _Model:
  saved = saved_models.load(checkpoint)
  _check_trained(source, saved.drawn, reads=reads)
  mesh = partitioning.make_mesh()
  _, params = saved.open_qa_model(mesh) if reads else saved.retriever(mesh)
  folders = [os.path.join(folder, VOCABULARY) for folder in (source, os.path.dirname(checkpoint))]
  for folder in (source, *folders):
    if os.path.exists(os.path.join(folder, wordpieces.VOCABULARY_FILE)):
      vocabulary = wordpieces.load(folder)
      saved.check_vocabulary(vocabulary.digest, source=folder)
      description = _restricted(saved.description, reads=reads)
      return _with_what_was_trained(_Model(description, params, vocabulary), saved.drawn)
  raise FileNotFoundError(
    f"no vocabulary in {folders[-1]}; copy there the folder `vocabulary` of the passages that "
    f"{source} was trained with"
  )


def _imported(source: str, *, reads: bool) -> _Model:
  sources = [importing.read_source(source)]
  vocabulary = importing.read_tokenizer(sources)
  model = importing.with_prompts(imported_model.find(sources), sources, vocabulary)
  model = dataclasses.replace(
    model,
    knowledge_augmented_encoder=None,
    span_reader=model.span_reader if reads else None,
  )
  if reads and model.span_reader is None:
    raise ValueError(
      f"{source} has no span reader; give a BertForQuestionAnswering, or fine-tune one with `realm "
      "finetune`"
    )
  params, drawn = importing.imported_params(model, seed=0)
  _check_trained(source, drawn, reads=reads)
  encoder = model.dual_encoder
  lengths = importing.lengths(model, sources, default=_LENGTHS)
  positions = encoder.bert.max_length
  beam = dataclasses.replace(BeamConfig(), joint_length=min(BeamConfig().joint_length, positions))
  description = ModelDescription(
    dual_encoder=encoder,
    span_reader=model.span_reader,
    beam=beam if reads else None,
    # Of few positions a question takes half, so that a passage fits next to it.
    query_length=min(lengths["query_length"], positions // 2) if reads else lengths["query_length"],
    passage_length=min(lengths["passage_length"], positions - len(encoder.passage_prompt)),
    vocabulary_digest=vocabulary.digest,
    corpus_fingerprint="",
  )
  description.check_sizes(vocabulary)
  return _with_what_was_trained(_Model(description, params, vocabulary), drawn)


def _with_what_was_trained(model: _Model, drawn: Sequence[str]) -> _Model:
  """Returns the model without a dual encoder of random weights, which only a reader may lack."""
  if not any(path.startswith("dual_encoder/") for path in drawn):
    return model
  description = dataclasses.replace(model.description, dual_encoder=UniformEncoderConfig())
  params = {name: part for name, part in model.params.items() if name != "dual_encoder"}
  return dataclasses.replace(model, description=description, params=params)


def _check_trained(source: str, drawn: Sequence[str], *, reads: bool) -> None:
  if reads and (untrained := [path for path in drawn if path.startswith("span_reader/")]):
    raise ValueError(
      f"{source} lacks weights of its span reader: {', '.join(untrained)}; give one that is whole"
    )
  if not reads and any(path.startswith("dual_encoder/") for path in drawn):
    raise ValueError(
      f"{source} is a BERT that was not trained to embed texts; give a sentence encoder, or train "
      "one with `realm train_retriever`"
    )


def _restricted(description: ModelDescription, *, reads: bool) -> ModelDescription:
  return dataclasses.replace(
    description,
    knowledge_augmented_encoder=None,
    retrieval=None,
    span_reader=description.span_reader if reads else None,
    beam=description.beam if reads else None,
    max_masks=0,
    corpus_fingerprint="",
  )
