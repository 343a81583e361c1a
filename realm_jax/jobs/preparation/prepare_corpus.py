"""Converts raw documents to a passage store and tagged examples."""

import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Literal

from realm_jax.corpus import input_files, local_pipeline, reading
from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.local_pipeline import PartLog
from realm_jax.corpus.parts import CorpusPart, CorpusWriter, PartMaker
from realm_jax.corpus.passage_store import CORPUS, StoreMetadata
from realm_jax.corpus.salient_spans import SpanFinder
from realm_jax.foundations import atomic_files, choices, object_store, progress
from realm_jax.text import tokenization, wordpieces
from realm_jax.text.languages import choose_languages

_LEAST_PASSAGE_LENGTH = 16  # of title, text and special tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineConfig:
  """Settings of an Apache Beam pipeline.

  Attributes:
    beam_options: Beam flags, such as `--runner=FlinkRunner`; empty uses Beam's local runner.
    beam_parts: Directory for intermediate parts that all Beam workers can reach; None uses a local
      one.
  """

  beam_options: Sequence[str] = ()
  beam_parts: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningConfig(choices.Checked):
  """Whether to learn the vocabulary, from the same input, if its directory does not exist.

  Attributes:
    vocab_size: Maximum number of wordpieces, including the five special tokens; None learns none.
    lower_case: Whether a learned vocabulary lower-cases text.
  """

  vocab_size: choices.Count | None = None
  lower_case: bool = True


def prepare_corpus(
  *,
  input: str,
  vocabulary: str,
  output: str,
  format: input_files.Format = "auto",
  language: Sequence[str] = ("auto",),
  learning: LearningConfig = LearningConfig(),
  chunking: ChunkingConfig = ChunkingConfig(),
  drop_list_pages: bool = True,
  num_shards: choices.Count = 64,
  num_workers: choices.Count = 1,
  engine: Literal["processes", "beam"] = "processes",
  beam: PipelineConfig = PipelineConfig(),
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
    num_workers: Without Beam, number of processes that make passages, including this one.
    engine: "processes" on this machine, or an Apache "beam" pipeline.
    beam: Settings of Beam.

  Returns:
    The metadata of the store.
  """
  if chunking.max_passage_length < _LEAST_PASSAGE_LENGTH:
    raise ValueError(
      f"max_passage_length={chunking.max_passage_length} cuts sentences to pieces; use at least "
      f"{_LEAST_PASSAGE_LENGTH}"
    )
  given = [f"--{name}" for name, value in dataclasses.asdict(beam).items() if value]
  if given and engine != "beam":
    raise ValueError(f"{', '.join(given)} without Beam; give --engine=beam")
  CORPUS.check(output)
  if learning.vocab_size is None:
    tokenization.load(vocabulary)  # refused before anything is read
  inputs = [input] if os.path.exists(input) else input.split(",")  # a name may have a comma
  files = list(itertools.chain(*input_files.find_files(inputs, format=format)))
  texts = reading.sample_texts(files)
  languages = choose_languages(language, texts)
  print(f"language: {', '.join(languages)}", flush=True)
  tokenizer = _vocabulary(vocabulary, learning, files=files, languages=languages)
  make_part = PartMaker(
    tokenizer=tokenizer,
    tag=SpanFinder(languages, texts),
    chunking=chunking,
    drop_list_pages=drop_list_pages,
    languages=languages,
  )
  with PartLog(output) as log, atomic_files.new_directory(output, kind=CORPUS) as directory:
    writer = CorpusWriter(directory, make_part=make_part, num_shards=num_shards)
    if engine == "beam":
      parts = _beam_parts(files, make_part=make_part, config=beam)
    else:
      parts = local_pipeline.make_parts(
        files, make_part=make_part, num_workers=num_workers, log=log
      )
    for part in parts:
      writer.append(part)
    metadata = writer.finish(input)
  print(f"{output}: {writer.report()}", flush=True)
  return metadata


def _vocabulary(
  directory: str,
  config: LearningConfig,
  *,
  files: Sequence[input_files.InputFile],
  languages: Sequence[str],
) -> tokenization.WordPieceTokenizer:
  """Reads the vocabulary, or else learns and writes it."""
  size = config.vocab_size
  if size is None or (object_store.absolute(directory) / tokenization.VOCABULARY_FILE).exists():
    found = tokenization.load(directory)
    if size is not None and found.vocab_size > size:
      raise ValueError(
        f"{directory} has {found.vocab_size:,} wordpieces, more than vocab_size={size}; give "
        "another directory, or omit the size"
      )
    return found
  wordpieces.VOCABULARY.check(directory)
  learned = reading.learn_vocabulary(
    files, vocab_size=size, lower_case=config.lower_case, languages=languages
  )
  learned.save(directory)
  print(f"{directory}: {learned.vocab_size:,} wordpieces, digest {learned.digest}", flush=True)
  return learned


def _beam_parts(
  files: Sequence[input_files.InputFile], *, make_part: PartMaker, config: PipelineConfig
) -> Iterator[CorpusPart]:
  try:
    from realm_jax.corpus import beam_pipeline
  except ImportError as error:
    raise ValueError(
      f"Apache Beam cannot be imported ({error}); install realm_jax with the extra `beam`"
    ) from error
  parts = beam_pipeline.make_parts(
    files, make_part=make_part, options=config.beam_options, directory=config.beam_parts
  )
  return progress.track(parts, what="passages", size=lambda part: len(part.rows))
