"""Compiles opened checkpoints to a mask filler, a question answerer or a question search."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from realm_jax.answering.answerer import Answerer, EditableCorpus, PastGeneration
from realm_jax.answering.mask_decoding import Reading, read
from realm_jax.answering.mask_filler import MaskFiller, MaskModel, answer_words
from realm_jax.answering.question_answerer import QuestionAnswerer, QuestionSearch
from realm_jax.answering.span_reader import AnswerText, QuestionModel
from realm_jax.checkpoints import orbax_files, saved_models
from realm_jax.checkpoints.opening import Opened, Sources, open_sources
from realm_jax.checkpoints.saved_models import ModelDescription
from realm_jax.devices.datatypes import RetrievedBatch
from realm_jax.index import generations
from realm_jax.models.encoder import passage_encoder_program, query_encoder
from realm_jax.models.open_qa import OpenQaModel
from realm_jax.models.realm import RealmPretrainingModel

_WORDS_CONSIDERED = 8  # at each mask

Put = Callable[[Any], Any]  # puts a batch on the devices


def open_answerer(sources: Sources, *, max_answer_length: int = 4, history: int = 0) -> Answerer:
  """Opens a pre-trained model for filling masks, or a fine-tuned one for questions.

  Args:
    max_answer_length: Maximum wordpieces that fill a mask.
    history: Number of the newest generations to open for comparison.
  """
  if max_answer_length < 1 or history < 0:
    raise ValueError(
      f"max_answer_length={max_answer_length} and history={history}; give at least 1 and 0"
    )
  opened = open_sources(sources)
  if opened.saved.description.span_reader is None:
    return mask_filler(opened, max_answer_length=max_answer_length, history=history)
  return question_answerer(opened, history=history)


def mask_filler(opened: Opened, *, max_answer_length: int = 4, history: int = 0) -> MaskFiller:
  """Returns a mask filler; see `open_answerer`."""
  saved, description = opened.saved, opened.saved.description
  if saved.drawn and not saved.fills_masks:
    raise ValueError(
      f"{saved.path} was imported without a head that predicts words, so it would fill masks at "
      "random; train it with `realm pretrain`, or search with it alone: `realm kb create kb docs/ "
      "--encoder=IT`, then `realm kb serve kb`"
    )
  model, params = saved.pretraining_model(opened.mesh)
  embed = _passage_embedder(opened, params)
  reader, retrieval = description.mask_filling(saved.path)
  words_V = answer_words(opened.store.tokenizer, reader.vocab_size)
  return MaskFiller(
    MaskModel(
      params=params,
      encode_query=query_encoder(description.dual_encoder, opened.put_on_devices),
      read=_passage_reader(model, embed, opened.put_on_devices, words_V=words_V),
      query_length=description.query_length,
      step=saved.step,
      retrieval=retrieval,
      max_masks=description.max_masks,
    ),
    _corpus(opened, embed, history=history),
    max_answer_length=max_answer_length,
  )


def question_answerer(
  opened: Opened, *, history: int = 0, batch_size: int = 32, answer_text: AnswerText = "raw"
) -> QuestionAnswerer:
  """Returns a question answerer; see `open_answerer` and `QuestionAnswerer`."""
  saved = opened.saved
  _, params = saved.open_qa_model(opened.mesh)
  return QuestionAnswerer(
    question_model(
      saved.description, params=params, put_on_devices=opened.put_on_devices, step=saved.step
    ),
    _corpus(opened, _passage_embedder(opened, params), history=history),
    batch_size=batch_size,
    answer_text=answer_text,
  )


def question_model(
  description: ModelDescription, *, params: dict, put_on_devices: Put, step: int = 0
) -> QuestionModel:
  """Compiles a fine-tuned model; `put_on_devices` puts a batch on the devices."""
  reader, beam = description.question_answering("the checkpoint")
  model = OpenQaModel(description.dual_encoder, reader)

  @jax.jit
  def run(params, batch):
    outputs = model.apply({"params": params}, batch, deterministic=True)
    return outputs.scores_BxR, outputs.logits_BxKxTxW

  return QuestionModel(
    params=params,
    encode_query=query_encoder(description.dual_encoder, put_on_devices),
    read=lambda params, batch: run(params, put_on_devices(batch)),
    query_length=description.query_length,
    step=step,
    beam=beam,
    max_span_width=reader.max_span_width,
  )


def question_search(opened: Opened) -> QuestionSearch:
  """Returns a search for questions; any checkpoint with a dual encoder will do."""
  description = opened.saved.description
  _, params = opened.saved.retriever(opened.mesh)
  return QuestionSearch(
    params=params,
    encode_query=query_encoder(description.dual_encoder, opened.put_on_devices),
    searcher=opened.loaded.searcher,
    tokenizer=opened.store.tokenizer,
    query_length=description.query_length,
    hybrid=opened.hybrid,
  )


def _corpus(opened: Opened, embed: Callable, *, history: int) -> EditableCorpus:
  return EditableCorpus(
    store=opened.store,
    loaded=opened.loaded,
    tokenizer=opened.store.tokenizer,
    passage_length=opened.saved.description.passage_length,
    embed_passage=embed,
    past=_past_generations(opened, count=history) if history else (),
    hybrid=opened.hybrid,
  )


def _past_generations(opened: Opened, *, count: int) -> list[PastGeneration]:
  """Opens the newest generations up to the one in use, oldest first."""
  index = opened.sources.index
  published = dataclasses.replace(opened.published, with_embeddings=False)
  numbers = [
    number for number in generations.all_generations(index) if number <= opened.loaded.generation
  ]
  past = []
  for number in numbers[-count:]:
    loaded = published.load(number)
    past.append(
      PastGeneration(
        generation=number,
        training_step=loaded.training_step,
        searcher=loaded.searcher,
        params=_params_of(opened, generations.read_manifest(index, number)),
      )
    )
  return past


def _params_of(opened: Opened, manifest: generations.Manifest) -> dict | None:
  """Returns the dual encoder that embedded a generation, if its checkpoint still exists."""
  directory, step = opened.saved.path.parent, manifest.training_step
  if orbax_files.first_intact(directory, [step]) is None:
    return None
  _, params = saved_models.load(directory, step=step).retriever(opened.mesh)
  # Another run's checkpoint may have the same step.
  encoder = opened.saved.description.dual_encoder
  digest = saved_models.passages_digest(encoder, params["dual_encoder"])
  return params if digest == manifest.parameters_digest else None


def _passage_embedder(opened: Opened, params: dict) -> Callable:
  embed = passage_encoder_program(opened.saved.description.dual_encoder, opened.mesh)
  return lambda passages: embed(params["dual_encoder"], opened.put_on_devices(passages))


def _passage_reader(
  model: RealmPretrainingModel, embed: Callable, put_on_devices: Put, *, words_V: np.ndarray
) -> Callable[[dict, RetrievedBatch], Reading]:
  """Returns `(params, RetrievedBatch) -> Reading` with several words considered at each mask.

  A passage that several queries retrieved is embedded once, because queries that differ only in
  their number of masks retrieve mostly the same passages.
  """

  @jax.jit
  def run(params, batch, passage_BxKxE):
    outputs = model.apply(
      {"params": params}, batch, deterministic=True, passage_BxKxE=passage_BxKxE
    )
    return read(
      outputs.scores_BxK,
      outputs.logits_BxKxMxV,
      batch.queries.mlm_weights_BxM,
      valid_BxK=batch.valid_BxK,
      alternatives=_WORDS_CONSIDERED,
      targets_BxM=batch.queries.mlm_targets_BxM,
      words_V=words_V,
    )

  def reader(params, batch):
    num_queries, num_passages, length = batch.passage.shape
    passages = batch.passage.reshape(-1, length)
    _, firsts, unique_N = np.unique(
      batch.passage_ids_BxK.reshape(-1), return_index=True, return_inverse=True
    )
    # Padded to a power of two per query, so that few shapes are compiled.
    parts = np.resize(firsts, (-(-len(firsts) // (2 * num_queries)), 2 * num_queries))
    embedded = [
      embed(jax.tree.map(lambda values, rows=rows: values[rows], passages)) for rows in parts
    ]
    passage_NxE = np.concatenate(jax.device_get(embedded))[unique_N]
    return run(params, *put_on_devices((batch, passage_NxE.reshape(num_queries, num_passages, -1))))

  return reader
