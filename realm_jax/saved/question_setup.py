"""Joins the rooms that answering questions needs: checkpoint, corpus, generation, predictor."""

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from realm_jax import partitioning
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.index import assembly
from realm_jax.inference import span_reading
from realm_jax.inference.question_predictor import NUM_SPANS, QuestionPredictor, QuestionSearch
from realm_jax.models.dual_encoder import DualEncoder, DualEncoderConfig
from realm_jax.models.open_qa import OpenQaModel
from realm_jax.objectives.open_qa import joint_logits
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.retrieval.question_retriever import EmbeddedGeneration, QuestionRetriever
from realm_jax.saved.retrieval_setup import PublishedGenerations
from realm_jax.saved.saved_models import ModelDescription, SavedModel
from realm_jax.wordpieces import Tokenizer


class EmbeddedGenerations:
  """Published generations that come with their embeddings.

  Args:
    index: directory of the generations.
    published: checks and loads them.
  """

  def __init__(self, index: str, *, published: PublishedGenerations):
    self._index = index
    self._published = published

  def newest(self) -> int | None:
    return self._published.newest()

  def load(self, generation: int) -> EmbeddedGeneration:
    """Loads a generation for searching; see `PublishedGenerations.load` for what is refused."""
    return self._embedded(self._published.load(generation))

  def load_newest(self) -> EmbeddedGeneration:
    """Loads the newest generation; see `PublishedGenerations.load_newest`."""
    return self._embedded(self._published.load_newest())

  def _embedded(self, loaded: LoadedGeneration) -> EmbeddedGeneration:
    fields = {field.name: getattr(loaded, field.name) for field in dataclasses.fields(loaded)}
    embeddings_NxE = assembly.load_embeddings(self._index, loaded.generation)
    return EmbeddedGeneration(**fields, embeddings_NxE=embeddings_NxE)


def query_encoder(
  config: DualEncoderConfig, place: Callable, *, sharding: jax.sharding.Sharding | None = None
) -> Callable:
  """Returns `(params, Tokens [B, L]) -> [B, E]` on the devices; it does not wait.

  Args:
    config: of the dual encoder; its parameters are `params["dual_encoder"]`.
    place: puts numpy queries on the devices.
    sharding: of the embeddings; None: as the compiler likes it.
  """
  module = DualEncoder(config)

  @functools.partial(jax.jit, out_shardings=sharding)
  def encode(params, tokens):
    return module.apply({"params": params}, tokens, deterministic=True, method="encode_query")

  return lambda params, tokens: encode(params["dual_encoder"], place(tokens))


def span_reader(model: OpenQaModel, place: Callable) -> Callable:
  """Returns `(params, RetrievedQuestions) -> SpanReading` on the devices."""

  @jax.jit
  def run(params, batch):
    outputs = model.apply({"params": params}, batch, deterministic=True)
    num_read = batch.joint.shape[1]
    valid_BxK = batch.valid_BxR[:, :num_read]
    scores_BxK = outputs.scores_BxR[:, :num_read]
    masked_BxK = jnp.where(valid_BxK, scores_BxK, jnp.finfo(scores_BxK.dtype).min)
    return span_reading.best_spans(
      joint_logits(masked_BxK, outputs.logits_BxKxTxW),
      outputs.logits_BxKxTxW,
      scores_BxK,
      valid_BxK=valid_BxK,
      num_spans=NUM_SPANS,
    )

  return lambda params, batch: run(params, place(batch))


@dataclasses.dataclass(frozen=True)
class _Opened:
  """A checkpoint's surroundings, found to fit it."""

  store: PassageStore
  tokenizer: Tokenizer
  published: PublishedGenerations
  mesh: jax.sharding.Mesh
  place: Callable


def _open(saved: SavedModel, *, passages: str, index: str, kind: str) -> _Opened:
  store = PassageStore(passages)
  # Fine-tuning on prepared examples needs the rest of this file, and no TensorFlow.
  from realm_jax import tokenization

  tokenizer = tokenization.load(os.path.join(passages, "vocabulary"))
  if tokenizer.digest != saved.description.vocabulary_digest:
    raise ValueError(
      f"{saved.path} was trained with vocabulary {saved.description.vocabulary_digest}, {passages} "
      f"was made with {tokenizer.digest}; prepare the corpus with the training's vocabulary"
    )
  description = dataclasses.replace(saved.description, corpus_fingerprint=store.fingerprint)
  mesh = partitioning.make_mesh()
  # Questions are few and of any number; every device has the whole batch.
  place = functools.partial(jax.device_put, device=partitioning.sharding(mesh))
  published = PublishedGenerations(index, description=description, kind=kind)
  return _Opened(store, tokenizer, published, mesh, place)


def open_question_retriever(
  saved: SavedModel, *, passages: str, index: str, generation: int | None = None, kind: str = "auto"
) -> QuestionSearch:
  """Opens any checkpoint with a dual encoder for retrieval, without further training.

  Args:
    saved: the checkpoint.
    passages: directory of the knowledge corpus; it need not be the one trained with.
    index: directory of the generations of that corpus.
    generation: which one; none: the newest.
    kind: "exact" searches any generation exactly, "auto" as it was built.

  Raises:
    FileNotFoundError: if one of them is missing.
    ValueError: if they do not fit each other.
  """
  opened = _open(saved, passages=passages, index=index, kind=kind)
  published = opened.published
  loaded = published.load_newest() if generation is None else published.load(generation)
  _, params = saved.retriever(opened.mesh)
  return QuestionSearch(
    params=params,
    encode_query=query_encoder(saved.description.dual_encoder, opened.place),
    searcher=loaded.searcher,
    tokenizer=opened.tokenizer,
    query_length=saved.description.query_length,
  )


def open_question_predictor(
  saved: SavedModel,
  *,
  passages: str,
  index: str,
  generation: int | None = None,
  kind: str = "auto",
  answer_text: Literal["raw", "spaced"] = "raw",
  batch_size: int = 32,
) -> QuestionPredictor:
  """Opens a fine-tuned checkpoint for answering questions.

  Args:
    saved: the checkpoint.
    passages: directory of the knowledge corpus; it need not be the one trained with.
    index: directory of the generations of that corpus.
    generation: which one; none: the newest.
    kind: see `open_question_retriever`.
    answer_text: see `QuestionPredictor`.
    batch_size: questions answered at once.

  Raises:
    FileNotFoundError: if one of them is missing.
    ValueError: if they do not fit each other, or the checkpoint has no span reader.
  """
  opened = _open(saved, passages=passages, index=index, kind=kind)
  model, params = saved.open_qa_model(opened.mesh)
  published = EmbeddedGenerations(index, published=opened.published)
  return make_predictor(
    params=params,
    read=span_reader(model, opened.place),
    encode_query=query_encoder(saved.description.dual_encoder, opened.place),
    loaded=published.load_newest() if generation is None else published.load(generation),
    description=saved.description,
    store=opened.store,
    tokenizer=opened.tokenizer,
    batch_size=batch_size,
    answer_text=answer_text,
  )


def make_predictor(
  *,
  params: dict,
  read: Callable,
  encode_query: Callable,
  loaded: EmbeddedGeneration,
  description: ModelDescription,
  store: PassageStore,
  tokenizer: Tokenizer,
  batch_size: int,
  answer_text: Literal["raw", "spaced"],
) -> QuestionPredictor:
  """Returns the predictor of some parameters over a generation.

  Args:
    params: of the model.
    read: see `span_reader`.
    encode_query: see `query_encoder`.
    loaded: the generation.
    description: of the model.
    store: the knowledge corpus.
    tokenizer: of the model.
    batch_size: questions answered at once.
    answer_text: see `QuestionPredictor`.
  """
  # Nothing is trained: the beam is what is read.
  beam = dataclasses.replace(description.beam, beam_size=description.beam.num_read)
  return QuestionPredictor(
    params=params,
    read=read,
    retriever=QuestionRetriever(
      encode_query=encode_query,
      loaded=loaded,
      store=store,
      config=beam,
      max_span_width=description.span_reader.max_span_width,
    ),
    search=QuestionSearch(
      params=params,
      encode_query=encode_query,
      searcher=loaded.searcher,
      tokenizer=tokenizer,
      query_length=description.query_length,
      batch_size=batch_size,
    ),
    store=store,
    tokenizer=tokenizer,
    query_length=description.query_length,
    batch_size=batch_size,
    answer_text=answer_text,
  )
