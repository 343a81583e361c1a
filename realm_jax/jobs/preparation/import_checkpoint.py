"""Converts weights of BERT, Hugging Face, REALM or ORQA to a checkpoint with its vocabulary."""

import dataclasses
import os
from collections.abc import Sequence

from absl import logging

from realm_jax.checkpoints import importing, orbax_files, saved_models
from realm_jax.checkpoints.formats import imported_model
from realm_jax.foundations import choices, hub, json_fields
from realm_jax.index.vectors.searcher import SearcherConfig
from realm_jax.retrieval.question_retriever import BeamConfig
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.training.run.training_run import CHECKPOINTS

VOCABULARY, PASSAGES, INDEX = "vocabulary", "passages", "index"


def import_checkpoint(
  *,
  source: list[str],
  workdir: str,
  vocabulary: str | None = None,
  lower_case: bool | None = None,
  prompts: importing.Prompts = importing.Prompts(),
  released: importing.ReleasedCorpus = importing.ReleasedCorpus(),
  searcher: SearcherConfig = SearcherConfig(),
  retrieval: RetrievalConfig = RetrievalConfig(),
  beam: BeamConfig = BeamConfig(),
  query_length: choices.TextLength = 96,
  max_masks: choices.Count = 10,
  seed: choices.Seed = 0,
) -> None:
  """Writes `WORKDIR/checkpoints` and `WORKDIR/vocabulary`, which other jobs can start from.

  The checkpoint has a dual encoder, a knowledge-augmented encoder if a source is a plain BERT, and
  a span reader if a source has one. Heads missing from all sources are initialised at random and
  named; a missing dual encoder starts from the BERT of another network. `blocks` adds the passage
  store `WORKDIR/passages`, and their embeddings `WORKDIR/index`.

  Args:
    source: Directories of Hugging Face models, TF-Hub modules or TensorFlow checkpoints, or
      OWNER/NAME on the hub; several if embedder and encoder are separate.
    workdir: Directory to write; it must not contain a checkpoint yet.
    vocabulary: Directory of the vocabulary; None uses that of the first source that has one.
    lower_case: Whether the vocabulary is "uncased"; None uses what the source declares.
    prompts: What precedes every query and passage.
    released: Files of the passages and their embeddings.
    searcher: Settings of the index.
    retrieval: Number and lengths of the passages that the model reads.
    query_length: Maximum wordpieces of a query.
    max_masks: Maximum masked wordpieces predicted per query.
    beam: Number and length of the passages that a span reader reads.
    seed: Seeds the heads that no source has.
  """
  directory = os.path.join(workdir, CHECKPOINTS)
  if orbax_files.steps(directory):
    raise ValueError(f"{directory} already has a checkpoint; choose another workdir")
  source = [hub.fetch(path).address for path in source]  # with its commit
  with json_fields.named(", ".join(source)):
    sources = [importing.read_source(path) for path in source]
    tokenizer = importing.read_tokenizer(sources, vocabulary=vocabulary, lower_case=lower_case)
    model = importing.with_prompts(imported_model.find(sources), sources, tokenizer, prompts)
  given = {"query_length": query_length, "passage_length": retrieval.passage_length}
  lengths = importing.lengths(model, sources, default=given)
  lengths = {name: min(length, given[name]) for name, length in lengths.items()}
  retrieval = dataclasses.replace(retrieval, passage_length=lengths["passage_length"])
  reads = model.knowledge_augmented_encoder is not None
  joint = [retrieval.joint_length] * reads + [beam.joint_length] * (model.span_reader is not None)
  importing.check_positions(model, lengths | {"joint_length": max(joint, default=0)})
  description = saved_models.ModelDescription(
    dual_encoder=model.dual_encoder,
    knowledge_augmented_encoder=model.knowledge_augmented_encoder,
    retrieval=retrieval if reads else None,
    span_reader=model.span_reader,
    beam=beam if model.span_reader is not None else None,
    **lengths,
    max_masks=max_masks if reads else 0,
    vocabulary_digest=tokenizer.digest,
    corpus_fingerprint="",
  )
  with json_fields.named(", ".join(source)):
    description.check_sizes(tokenizer)
    params, drawn = importing.imported_params(model, seed=seed)
  if released.blocks is not None:
    store = importing.write_store(
      os.path.join(workdir, PASSAGES),
      blocks=released.blocks,
      titles=released.titles,
      tokenizer=tokenizer,
      passage_length=retrieval.passage_length,
    )
    description = dataclasses.replace(description, corpus_fingerprint=store.fingerprint)
    embeddings_NxE = importing.released_embeddings(released.embeddings, sources)
    if embeddings_NxE is not None:
      importing.publish_embeddings(
        os.path.join(workdir, INDEX),
        embeddings_NxE,
        store=store,
        embedding_size=model.dual_encoder.projection_size,
        searcher=searcher,
        parameters_digest=saved_models.passages_digest(model.dual_encoder, params["dual_encoder"]),
      )
  # The checkpoint is written last, so a workdir that has one is complete.
  tokenizer.save(os.path.join(workdir, VOCABULARY))
  importing.write(directory, description, params, imported_from=list(source), drawn=drawn)
  print(f"{workdir}: {_report(model, drawn)}, {tokenizer.vocab_size:,} wordpieces", flush=True)
  if model.unused:
    logging.info("not used: %s", ", ".join(model.unused))


def _report(model: imported_model.ImportedModel, drawn: Sequence[str]) -> str:
  names = [
    name
    for name in ("dual_encoder", "knowledge_augmented_encoder", "span_reader")
    if getattr(model, name) is not None
  ]
  fresh = f"drawn at random: {', '.join(drawn)}" if drawn else "nothing drawn at random"
  return f"{', '.join(names)}; {fresh}"
