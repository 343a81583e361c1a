"""Opens a checkpoint, a corpus and an index's generations for answers that explain themselves."""

import dataclasses
import functools
import os
from collections.abc import Callable

import jax
import numpy as np

from realm_jax import partitioning, tokenization
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import questions
from realm_jax.datatypes import Tokens
from realm_jax.index import generations
from realm_jax.inference.editable_corpus import EditableCorpus, PastGeneration
from realm_jax.inference.mask_filler import MaskFiller
from realm_jax.inference.question_answerer import QuestionAnswerer
from realm_jax.inference.reading import read
from realm_jax.models import dual_encoder
from realm_jax.models.encoder_programs import passage_encoder_program
from realm_jax.models.open_qa import OpenQaModel
from realm_jax.models.realm import RealmPretrainingModel
from realm_jax.saved import saved_models
from realm_jax.saved.question_setup import EmbeddedGenerations
from realm_jax.saved.question_setup import query_encoder as question_encoder
from realm_jax.saved.retrieval_setup import PublishedGenerations, query_encoder
from realm_jax.training import checkpoints as saved_checkpoints

_WORDS_CONSIDERED = 8  # at each mask


def open_answering_model(
  *,
  checkpoints: str,
  passages: str,
  index: str,
  step: int | None = None,
  generation: int | None = None,
  max_answer_length: int = 4,
  history: int = 0,
) -> MaskFiller | QuestionAnswerer:
  """Opens a pre-trained model for filling masks, or a fine-tuned one for questions.

  Args:
    checkpoints: directory of the checkpoints of a pre-training or a fine-tuning.
    passages: directory of the knowledge corpus to answer from.
    index: directory of the index generations of that corpus.
    step: checkpoint; none: the newest.
    generation: index generation; none: the newest.
    max_answer_length: wordpieces that fill a mask at most.
    history: how many of the newest generations are opened to be compared.

  Raises:
    FileNotFoundError: if one of them is missing.
    ValueError: if they do not fit each other, or the checkpoint has nothing that answers.
  """
  saved = saved_models.load(checkpoints, step=step)
  description = saved.description
  store = PassageStore(passages)
  tokenizer = tokenization.load(os.path.join(passages, "vocabulary"))
  if tokenizer.digest != description.vocabulary_digest:
    raise ValueError(
      f"{saved.path} was trained with vocabulary {description.vocabulary_digest}, {passages} "
      f"was made with {tokenizer.digest}; prepare the corpus with the training's vocabulary"
    )
  mesh = partitioning.make_mesh()
  # Questions are few and of any number; every device has the whole batch.
  place = functools.partial(jax.device_put, device=partitioning.sharding(mesh))
  published = PublishedGenerations(
    index, description=dataclasses.replace(description, corpus_fingerprint=store.fingerprint)
  )
  questions_asked = description.span_reader is not None
  source = EmbeddedGenerations(index, published=published) if questions_asked else published
  loaded = source.load_newest() if generation is None else source.load(generation)
  past = [
    _past_generation(number, index=index, published=published, saved=saved, mesh=mesh)
    for number in _compared(index, last=loaded.generation, count=history)
  ]
  model, params = (saved.open_qa_model if questions_asked else saved.pretraining_model)(mesh)
  tower_params = dual_encoder.passage_tower_params(params)
  embed_with = passage_encoder_program(dual_encoder.Tower(description.dual_encoder))

  def embed(passages):
    return embed_with(tower_params, place(passages))

  corpus = EditableCorpus(
    store=store,
    searcher=loaded.searcher,
    tokenizer=tokenizer,
    embed_passage=embed,
    passage_length=description.passage_length,
    past=past,
  )
  if questions_asked:
    return QuestionAnswerer(
      params=params,
      encode_query=question_encoder(description.dual_encoder, place),
      read=_span_scores(model, place),
      corpus=corpus,
      loaded=loaded,
      tokenizer=tokenizer,
      config=description.beam,
      max_span_width=description.span_reader.max_span_width,
      query_length=description.query_length,
      step=saved.step,
    )

  def make_query(text: str, num_masks: int):
    return questions.masked_text_query(
      text,
      num_masks=num_masks,
      tokenizer=tokenizer,
      query_length=description.query_length,
      max_masks=description.max_masks,
    )

  return MaskFiller(
    params=params,
    encode_query=query_encoder(model, place),
    read=_reader(model, embed, place),
    make_query=make_query,
    corpus=corpus,
    tokenizer=tokenizer,
    config=description.retrieval,
    max_masks=description.max_masks,
    max_answer_length=max_answer_length,
    step=saved.step,
  )


def _compared(index: str, *, last: int, count: int) -> list[int]:
  numbers = [number for number in generations.all_generations(index) if number <= last]
  return numbers[-count:] if count else []


def _past_generation(
  number: int,
  *,
  index: str,
  published: PublishedGenerations,
  saved: saved_models.SavedModel,
  mesh: jax.sharding.Mesh,
) -> PastGeneration:
  loaded = published.load(number)
  manifest = generations.read_manifest(index, number)
  params = None
  if loaded.training_step in saved_checkpoints.steps(saved.path.parent):
    then = saved_models.load(saved.path.parent, step=loaded.training_step)
    _, restored = then.retriever(mesh)
    tower = dual_encoder.passage_tower_params(restored)
    # Another run's checkpoint may have the same step.
    if saved_models.params_digest(tower) == manifest.parameters_digest:
      params = restored
  return PastGeneration(
    generation=number, training_step=loaded.training_step, searcher=loaded.searcher, params=params
  )


def _reader(model: RealmPretrainingModel, embed: Callable[[Tokens], jax.Array], place):
  """Returns `(params, RetrievedBatch) -> Reading` on the devices, several words for each mask.

  A passage that several queries found is embedded once: queries that differ in the number of masks
  find much the same.
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
    )

  def reader(params, batch):
    num_queries, num_passages, length = batch.passage.shape
    passages = batch.passage.reshape(-1, length)
    _, firsts, unique_N = np.unique(
      batch.passage_ids_BxK.reshape(-1), return_index=True, return_inverse=True
    )
    # As many times two a query as it takes: one shape to compile.
    parts = np.resize(firsts, (-(-len(firsts) // (2 * num_queries)), 2 * num_queries))
    embedded = [
      embed(jax.tree.map(lambda values, rows=rows: values[rows], passages)) for rows in parts
    ]
    passage_NxE = np.concatenate(jax.device_get(embedded))[unique_N]
    return run(params, *place((batch, passage_NxE.reshape(num_queries, num_passages, -1))))

  return reader


def _span_scores(model: OpenQaModel, place):
  """Returns `(params, RetrievedQuestions) -> scores_BxK, logits_BxKxTxW` on the devices."""

  @jax.jit
  def run(params, batch):
    outputs = model.apply({"params": params}, batch, deterministic=True)
    return outputs.scores_BxR, outputs.logits_BxKxTxW

  return lambda params, batch: run(params, place(batch))
