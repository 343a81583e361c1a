"""The corpora of the demonstration: the almanac, cut into passages in several ways."""

import itertools
import os
import shutil

from realm_jax.corpus import input_files, vocabulary
from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.demo.make_almanac import make_almanac
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus


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
    num_invented_entities: See `make_almanac`.
  """
  almanac = os.path.join(directory, "almanac")
  make_almanac(output=almanac, seed=seed, num_invented_entities=num_invented_entities)
  documents, training = (os.path.join(almanac, f"{n}.jsonl") for n in ("documents", "training"))
  read = [documents, training, os.path.join(almanac, "values.jsonl")]
  files = itertools.chain(*input_files.find_files(read, format="jsonl"))
  learned = vocabulary.learn([*files], vocab_size=vocab_size)
  learned.save(os.path.join(directory, "vocabulary"))
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
