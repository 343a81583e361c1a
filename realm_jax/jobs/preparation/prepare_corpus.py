"""Converts raw documents to a passage store and tagged examples."""

import dataclasses
import functools
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
from absl import logging

from realm_jax import __version__
from realm_jax.corpus import input_files, reading
from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.documents import BadRecords, UidSet
from realm_jax.corpus.parts import CorpusPart, PartLog, PartMaker, ordered_map
from realm_jax.corpus.passage_store import (
  CORPUS,
  PassageRow,
  PassageStoreWriter,
  StoreMetadata,
  id_dtype,
)
from realm_jax.data import tagged_examples
from realm_jax.data.salient_spans import SpanFinder
from realm_jax.foundations import atomic_files, choices, object_store, progress
from realm_jax.text import tokenization, wordpieces
from realm_jax.text.languages import choose_languages

_UNKNOWN = (0.01, 0.2)  # shares of the wordpieces: more are warned of, or refused
_ENOUGH_TO_JUDGE = 1_000  # wordpieces
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

  def tokenizer(
    self, directory: str, *, learn: Callable[..., tokenization.WordPieceTokenizer]
  ) -> tokenization.WordPieceTokenizer:
    """Reads the vocabulary, or else learns and writes it."""
    if (
      self.vocab_size is None
      or (object_store.absolute(directory) / tokenization.VOCABULARY_FILE).exists()
    ):
      found = tokenization.load(directory)
      if self.vocab_size is not None and found.vocab_size > self.vocab_size:
        raise ValueError(
          f"{directory} has {found.vocab_size:,} wordpieces, more than vocab_size="
          f"{self.vocab_size}; give another directory, or omit the size"
        )
      return found
    wordpieces.VOCABULARY.check(directory)
    learned = learn(vocab_size=self.vocab_size, lower_case=self.lower_case)
    learned.save(directory)
    print(f"{directory}: {learned.vocab_size:,} wordpieces, digest {learned.digest}", flush=True)
    return learned


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
  maker = _Beam(beam) if engine == "beam" else _Processes(num_workers)
  files = list(itertools.chain(*input_files.find_files(inputs, format=format, expand=maker.expand)))
  texts = reading.sample_texts(files, open_file=maker.open_file)
  languages = choose_languages(language, texts)
  print(f"language: {', '.join(languages)}", flush=True)
  learn = functools.partial(
    reading.learn_vocabulary, files, languages=languages, open_file=maker.open_file
  )
  tokenizer = learning.tokenizer(vocabulary, learn=learn)
  make_part = PartMaker(
    tokenizer=tokenizer,
    tag=SpanFinder(languages, texts),
    serialize=tagged_examples.serialize,
    chunking=chunking,
    drop_list_pages=drop_list_pages,
    languages=languages,
  )
  gathered = _Gathered(tokenizer)
  with (
    PartLog(_log_path(output)) as log,
    atomic_files.new_directory(output, kind=CORPUS) as directory,
  ):
    store = PassageStoreWriter(
      directory, tokenizer=tokenizer, max_passage_length=chunking.max_passage_length
    )
    examples = tagged_examples.TaggedExampleWriter(directory, num_shards=num_shards)

    def write(row: PassageRow, example: bytes) -> None:
      store.append_row(row)
      examples.write(example)

    gathered.gather(maker.parts(files, make_part, log), write)
    examples.close()
    gathered.check(input)
    metadata = store.finish(counts=gathered.counts, languages=languages)
    tokenizer.save(os.path.join(directory, "vocabulary"))
  print(f"{output}: {gathered.report()}", flush=True)
  return metadata


def _log_path(output: str) -> str:
  """Returns the file that keeps the parts, next to the output or in the local cache."""
  if object_store.is_remote(output):
    name = hashlib.sha256(output.encode()).hexdigest()[:16]
    return os.path.join(object_store.cache_directory(), f"{name}.parts")
  parent, name = os.path.split(os.path.realpath(output))
  return os.path.join(parent, f".{name}.parts")


def _digest(files: Sequence[input_files.InputFile], make_part: PartMaker) -> str:
  """Returns a digest of what the parts depend on, without reading the files."""
  stats = [object_store.Path(file.path).stat() for file in files]
  read = [(str(file), stat.length, stat.mtime) for file, stat in zip(files, stats, strict=True)]
  settings = (make_part.chunking, make_part.drop_list_pages, make_part.languages)
  whole = repr((__version__, make_part.tokenizer.digest, settings, read))
  return hashlib.sha256(whole.encode()).hexdigest()


class _Processes:
  """Makes parts in processes of this machine."""

  def __init__(self, num_workers: int):
    self._num_workers = num_workers
    self.expand, self.open_file = input_files.input_files, reading.open_file

  def parts(
    self, files: Sequence[input_files.InputFile], make_part: PartMaker, log: PartLog
  ) -> Iterator[CorpusPart]:
    """Yields the parts in the order of the files, first those in the log."""
    reader = reading.DocumentReader(files)
    make_parts = functools.partial(
      ordered_map,
      make_part,
      num_workers=self._num_workers,
      preload=[PartMaker.__module__, "realm_jax.text.normalization", "tensorflow_text"],
    )
    parts = log.resume(make_parts, reading.batches(reader), digest=_digest(files, make_part))
    return progress.track(
      parts, what="passages", size=lambda part: len(part.rows), fraction=reader.fraction
    )


class _Beam:
  """Makes parts in a Beam pipeline; see `_Processes`."""

  def __init__(self, config: PipelineConfig):
    try:
      from realm_jax.corpus import beam_pipeline
    except ImportError as error:
      raise ValueError(
        f"Apache Beam cannot be imported ({error}); install realm_jax with the extra `beam`"
      ) from error
    self._make_parts = beam_pipeline.make_parts
    self._config = config
    self.expand, self.open_file = beam_pipeline.input_files, beam_pipeline.open_file

  def parts(
    self, files: Sequence[input_files.InputFile], make_part: PartMaker, log: PartLog
  ) -> Iterator[CorpusPart]:
    del log  # a pipeline's engine retries what has failed
    parts = self._make_parts(
      files,
      make_part=make_part,
      options=self._config.beam_options,
      directory=self._config.beam_parts,
    )
    return progress.track(parts, what="passages", size=lambda part: len(part.rows))


class _Gathered:
  """Concatenates parts in order, without duplicate passages.

  Attributes:
    counts: Documents, passages, wordpieces and bad records so far.
  """

  def __init__(self, tokenizer: tokenization.WordPieceTokenizer):
    self.counts: Counter = Counter()
    self._tokenizer = tokenizer
    self._bad = BadRecords()

  def gather(self, parts: Iterable[CorpusPart], write: Callable[[PassageRow, bytes], None]) -> None:
    """Calls `write` with every passage that is not a duplicate."""
    dtype = id_dtype(self._tokenizer.vocab_size)
    unknown = self._tokenizer.unk_id
    uids = UidSet()
    for part in parts:
      self.counts.update(part.counts)
      for bad in part.bad_records:
        self._bad.add(bad)
      self._bad.add_ids(part.ids)
      new = uids.add([row.uid for row in part.rows])
      self.counts["duplicate_passages"] += new.count(False)
      self.counts["passages"] += new.count(True)
      for row, example, is_new in zip(part.rows, part.examples, new, strict=True):
        if is_new:
          ids = np.frombuffer(row.body_ids, dtype)
          self.counts["wordpieces"] += len(ids)
          self.counts["unknown_wordpieces"] += int(np.count_nonzero(ids == unknown))
          write(row, example)

  def check(self, pattern: str) -> None:
    """Warns if the vocabulary knows too little of the text.

    Raises:
      ValueError: If there are no passages, or the vocabulary is one of other languages.
    """
    if not self.counts["passages"]:
      raise ValueError(f"no text in {pattern!r}: {self.report()}")
    share = self.counts["unknown_wordpieces"] / max(self.counts["wordpieces"], _ENOUGH_TO_JUDGE)
    if share > _UNKNOWN[0]:
      says = f"the vocabulary does not know {share:.1%} of the wordpieces of {pattern!r}"
      says += "; learn one with another --vocabulary and --vocab_size"
      if share > _UNKNOWN[1]:
        raise ValueError(f"{says}, or take an encoder of these languages")
      logging.warning("%s", says)

  def report(self) -> str:
    """Returns the counts, and names bad records and repeated ids."""
    counts = dict(sorted(self.counts.items()))
    if self.counts["wordpieces"]:
      counts.pop("unknown_wordpieces")
    lines = [", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())]
    if self.counts["wordpieces"]:
      share = self.counts["unknown_wordpieces"] / self.counts["wordpieces"]
      lines[0] += f", {share:.3%} of the wordpieces unknown"
    return "\n".join([*lines, *self._bad.report()])
