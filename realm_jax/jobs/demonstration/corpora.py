"""The directory of a demonstration, and the corpora in it that are made from the almanac."""

import itertools
import os
import pathlib
import shutil

from realm_jax.corpus import input_files
from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.vocabulary import learn_vocabulary
from realm_jax.demo.make_almanac import make_almanac
from realm_jax.devices import directory_lock
from realm_jax.foundations.output_kinds import DirectoryKind
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus

CONFIG = "demo_config.gin"
WORKDIR_KIND = DirectoryKind(
  name="a demonstration",
  files=(
    *("*_config.gin", directory_lock.LOCK_FILE, "summary.json", "curves.png", "logs/"),
    *("almanac/", "vocabulary/", "passages/", "whole_documents/", "training/"),
    *("ict/", "untrained/", "reading/", "pretrain/", "index/", "index.unfinished/", "evaluation/"),
    *("edited_passages/", "edited_index/", "edited_index.unfinished/", "evaluation_edited/"),
  ),
)


def clear(workdir: str) -> None:
  """Removes the files of an earlier demonstration, but not this one's configuration."""
  WORKDIR_KIND.check(workdir)
  for path in pathlib.Path(workdir).iterdir():
    if path.is_dir() and not path.is_symlink():
      shutil.rmtree(path)
    elif path.name not in (CONFIG, directory_lock.LOCK_FILE):
      path.unlink()


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
  learned = learn_vocabulary([*files], vocab_size=vocab_size)
  learned.save(os.path.join(directory, "vocabulary"))
  prepare_facts(directory, documents, name="passages", passage_length=passage_length)
  whole = ChunkingConfig(max_passage_length=3 * passage_length // 2)
  _prepare(directory, documents, name="whole_documents", chunking=whole)
  chunking = ChunkingConfig(max_passage_length=64)
  _prepare(directory, training, name="training", chunking=chunking)


def prepare_facts(directory: str, documents: str, *, name: str, passage_length: int) -> None:
  """Makes passages of one fact each from documents, with the vocabulary in the directory."""
  chunking = ChunkingConfig(max_passage_length=passage_length, max_sentences=1)
  _prepare(directory, documents, name=name, chunking=chunking)


def _prepare(directory: str, source: str, *, name: str, chunking: ChunkingConfig) -> None:
  prepare_corpus(
    input=source,
    output=os.path.join(directory, name),
    vocabulary=os.path.join(directory, "vocabulary"),
    chunking=chunking,
    num_shards=1,
  )
