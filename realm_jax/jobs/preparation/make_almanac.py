"""Writes the built-in world: documents, training sentences, questions, and an edited copy."""

import os
import shutil

from realm_jax.almanac import world as almanac
from realm_jax.almanac import writing
from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.foundations import atomic_files, object_store
from realm_jax.jobs.preparation.learn_vocabulary import learn_vocabulary
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus


def make_almanac(
  *,
  output: str,
  seed: int = 0,
  num_invented_entities: int = 6_500,
  num_edits: int = 100,
) -> None:
  """Writes `documents`, `training`, `heldout` and `values.jsonl`, and `edited/`, into `output`.

  Args:
    output: Directory to write; replaced as a whole when finished.
    seed: Seeds names, values, wordings and the held-out facts.
    num_invented_entities: Invented towns, ships, stars and the like, with two facts each.
    num_edits: Number of facts with a new value in `edited/documents.jsonl`, asked for in
      `edited/questions.jsonl`.
  """
  object_store.check_local(output=output)
  writing.ALMANAC.check(output)
  world = almanac.make_world(seed=seed, num_invented_entities=num_invented_entities)
  edited = almanac.edit(world, seed=seed + 1, num_edits=num_edits)
  with atomic_files.new_directory(output, kind=writing.ALMANAC) as directory:
    writing.write_world(world, directory)
    writing.write_edits(edited, os.path.join(directory, writing.EDITED))
  held_out = sum(fact.held_out for fact in world.facts)
  print(f"{output}: {len(world.facts):,} facts, {held_out:,} of them held out", flush=True)


def make_corpora(
  directory: str,
  *,
  seed: int,
  vocab_size: int,
  passage_length: int,
  num_invented_entities: int = 6_500,
) -> None:
  """Writes the almanac and the corpora made from it.

  These are `almanac/`, `vocabulary/`, `passages/` (one fact each), `whole_documents/` (the same
  facts by subject) and `training/` (the training corpus).

  Args:
    seed: Seeds the world.
    passage_length: Maximum wordpieces of a passage.
    num_invented_entities: See `realm make_almanac`.
  """
  almanac = os.path.join(directory, "almanac")
  make_almanac(output=almanac, seed=seed, num_invented_entities=num_invented_entities)
  documents, training = (os.path.join(almanac, f"{n}.jsonl") for n in ("documents", "training"))
  learn_vocabulary(
    inputs=[documents, training, os.path.join(almanac, "values.jsonl")],
    output=os.path.join(directory, "vocabulary"),
    vocab_size=vocab_size,
  )
  prepare_facts(directory, documents, name="passages", passage_length=passage_length)
  _prepare(directory, documents, name="whole_documents", max_passage_length=3 * passage_length // 2)
  _prepare(directory, training, name="training", max_passage_length=64)


def prepare_facts(directory: str, documents: str, *, name: str, passage_length: int) -> None:
  """Makes passages of one fact each from documents, with the vocabulary in the directory."""
  _prepare(directory, documents, name=name, max_passage_length=passage_length, max_sentences=1)


def add_training_sentences(directory: str, *, name: str, passage_length: int) -> None:
  """Makes passages of facts and training sentences, so that queries have trivial passages."""
  almanac, both = os.path.join(directory, "almanac"), os.path.join(directory, f"{name}_texts")
  os.makedirs(both, exist_ok=True)
  for file in ("documents.jsonl", "training.jsonl"):
    shutil.copy(os.path.join(almanac, file), both)
  prepare_facts(directory, both, name=name, passage_length=passage_length)


def _prepare(
  directory: str,
  source: str,
  *,
  name: str,
  max_passage_length: int,
  max_sentences: int | None = None,
) -> None:
  prepare_corpus(
    input=source,
    output=os.path.join(directory, name),
    vocabulary=os.path.join(directory, "vocabulary"),
    chunking=ChunkingConfig(max_passage_length=max_passage_length, max_sentences=max_sentences),
    num_shards=1,
  )
