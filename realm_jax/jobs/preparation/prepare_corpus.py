"""Converts raw documents to a passage store and tagged examples."""

import itertools
import os
from collections.abc import Sequence

from realm_jax.corpus import input_files, reading
from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.engines import EngineConfig
from realm_jax.corpus.local_pipeline import PartLog
from realm_jax.corpus.parts import CorpusWriter, PartMaker
from realm_jax.corpus.passage_store import CORPUS, StoreMetadata
from realm_jax.corpus.salient_spans import SpanFinder
from realm_jax.corpus.vocabulary import VocabularyConfig
from realm_jax.foundations import atomic_files, choices
from realm_jax.text import tokenization
from realm_jax.text.languages import choose_languages

_LEAST_PASSAGE_LENGTH = 16  # of title, text and special tokens


def prepare_corpus(
  *,
  input: str,
  vocabulary: str,
  output: str,
  format: input_files.Format = "auto",
  language: Sequence[str] = ("auto",),
  learning: VocabularyConfig = VocabularyConfig(),
  chunking: ChunkingConfig = ChunkingConfig(),
  drop_list_pages: bool = True,
  num_shards: choices.Count = 64,
  engine: EngineConfig = EngineConfig(),
) -> StoreMetadata:
  """Writes `output`: a passage store, and the same passages as tagged examples.

  The same input gives the same bytes, whatever the engine and the number of workers. Interrupted
  and run again, the same command goes on after the last part, except with Beam. A document with
  `spans` keeps them; others are tagged by rule: dates, numbers and names, and in languages other
  than English rare terms.

  Args:
    input: Glob patterns or directories, separated by commas, of JSON Lines with `id`, `title`,
      `text` (plain or gzip), Parquet with the same columns, or texts with a
      title line.
    vocabulary: Directory with `vocab.txt`; with `vocab_size`, to be written if it does not exist.
    output: Directory to write; replaced as a whole when finished.
    format: Format of the input; "auto" infers it from the file names.
    language: Languages of the documents as BCP 47 tags, such as `de` or `en,zh`; "auto" detects
      them in a sample. They decide where sentences end, what a salient span is and which words
      BM25 compares.
    learning: How to learn the vocabulary.
    chunking: How documents are cut into passages.
    drop_list_pages: Whether to skip an encyclopedia's list and disambiguation pages.
    num_shards: Number of files of tagged examples; training reads 16 at once, in another order
      each epoch.
    engine: What makes the passages.

  Returns:
    The metadata of the store.
  """
  if chunking.max_passage_length < _LEAST_PASSAGE_LENGTH:
    raise ValueError(
      f"max_passage_length={chunking.max_passage_length} cuts sentences to pieces; use at least "
      f"{_LEAST_PASSAGE_LENGTH}"
    )
  CORPUS.check(output)
  if learning.vocab_size is None:
    tokenization.load(vocabulary)  # refused before anything is read
  inputs = [input] if os.path.exists(input) else input.split(",")  # a name may have a comma
  files = list(itertools.chain(*input_files.find_files(inputs, format=format)))
  texts = reading.sample_texts(files)
  languages = choose_languages(language, texts)
  print(f"language: {', '.join(languages)}", flush=True)
  tokenizer = learning.tokenizer(vocabulary, files, languages=languages)
  make_part = PartMaker(
    tokenizer=tokenizer,
    tag=SpanFinder(languages, texts),
    chunking=chunking,
    drop_list_pages=drop_list_pages,
    languages=languages,
  )
  with PartLog(output) as log, atomic_files.new_directory(output, kind=CORPUS) as directory:
    writer = CorpusWriter(directory, make_part=make_part, num_shards=num_shards)
    for part in engine.make_parts(files, make_part=make_part, log=log):
      writer.append(part)
    metadata = writer.finish(input)
  print(f"{output}: {writer.report()}", flush=True)
  return metadata
