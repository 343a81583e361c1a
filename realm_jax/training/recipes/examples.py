"""Sources of training examples: a SeqIO task, or arrays prepared from one in advance."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import jax

from realm_jax.corpus import tagged_examples
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches, prepared_examples
from realm_jax.data.questions import Question, answers_digest, texts_digest
from realm_jax.foundations import choices, progress
from realm_jax.text import wordpieces

Keep = Callable[[batches.Features], batches.Features]
_ROWS_AT_ONCE = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(choices.Checked):
  """The examples of a training and how they are batched.

  Attributes:
    batch_size: Examples per step.
    query_length: Maximum wordpieces of a query; longer queries are truncated.
    data_streams: Number of streams that the data are read in. It determines the batches, whatever
      the number of processes. None uses one stream per process.
  """

  kind: ClassVar[str]
  batch_size: choices.Count
  query_length: choices.TextLength
  data_streams: choices.Count | None = None

  def settings(self) -> dict[str, prepared_examples.Setting]:
    """Returns the settings that determine the examples."""
    fields = dataclasses.asdict(self)
    decides = {k: v for k, v in fields.items() if k not in ("batch_size", "data_streams")}
    return {"task": self.kind, **decides}

  def settings_of_batches(self) -> dict[str, prepared_examples.Setting]:
    """Returns the settings that determine how examples are batched."""
    streams = self.data_streams
    return {
      "batch_size": self.batch_size,
      "data_streams": jax.process_count() if streams is None else streams,
    }

  def task(self, *, source: str, vocabulary: str) -> dict[str, Any]:
    """Returns the task and its lengths, for `input_pipeline.task_batches`."""
    raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedQueryData(DataConfig):
  """Masked queries of a tagged corpus.

  Attributes:
    max_masks: Maximum masked wordpieces predicted per query.
    mask: What to mask: a salient span of a sentence, as published; for ablations, a random span or
      random wordpieces of a sentence; or, as BERT does, random wordpieces of a passage.
  """

  kind = "masked_queries"
  batch_size: choices.Count = 512
  query_length: choices.TextLength = 96
  max_masks: choices.Count = 10
  mask: batches.Masking = "salient_span"

  def task(self, *, source: str, vocabulary: str) -> dict[str, Any]:
    from realm_jax.tasks import salient_span_masking

    return {
      "task": salient_span_masking.register(corpus=source, vocabulary=vocabulary, mask=self.mask),
      "lengths": {
        "query": self.query_length,
        "mlm_positions": self.max_masks,
        "mlm_targets": self.max_masks,
      },
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairData(DataConfig):
  """Sentences paired with the rest of their passages (Lee et al. 2019).

  Attributes:
    passage_length: Maximum wordpieces of a passage.
    hide_salient_spans: Whether to mask salient spans of the query.
  """

  kind = "inverse_cloze"
  batch_size: choices.Count = 4096
  query_length: choices.TextLength = 64
  passage_length: choices.PassageLength = 288
  hide_salient_spans: bool = False

  def task(self, *, source: str, vocabulary: str) -> dict[str, Any]:
    from realm_jax.tasks import inverse_cloze

    return {
      "task": inverse_cloze.register(
        corpus=source,
        vocabulary=vocabulary,
        hide_salient_spans=self.hide_salient_spans,
      ),
      "lengths": {
        "query": self.query_length,
        "passage": self.passage_length,
      },
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionData(DataConfig):
  """Questions of a file."""

  kind = "questions"
  batch_size: choices.Count = 16
  query_length: choices.TextLength = 64

  def task(self, *, source: str, vocabulary: str) -> dict[str, Any]:
    from realm_jax.tasks import open_qa

    return {
      "task": open_qa.register(questions=source, vocabulary=vocabulary),
      "lengths": {"query": self.query_length, "question_index": 1},
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExampleSettings(choices.Checked):
  """The settings of the training that the examples are for.

  Attributes:
    query_length: Maximum wordpieces of a query; None uses 96 for masked queries, 64 for others.
    passage_length: See `PairData`.
    hide_salient_spans: See `PairData`.
    max_masks: See `MaskedQueryData`.
    mask: See `MaskedQueryData`.
  """

  query_length: choices.TextLength | None = None
  passage_length: choices.PassageLength = PairData.passage_length
  hide_salient_spans: bool = PairData.hide_salient_spans
  max_masks: choices.Count = MaskedQueryData.max_masks
  mask: batches.Masking = MaskedQueryData.mask

  def data(self, task: str) -> DataConfig:
    """Returns the data configuration of a task."""
    kind = {"masked_queries": MaskedQueryData, "questions": QuestionData}.get(task, PairData)
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{k: v for k, v in vars(self).items() if k in names and v is not None})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
  """Examples and where they come from.

  Attributes:
    source: Input of the task, or a directory of prepared examples.
    vocabulary: Directory with `vocab.txt`.
    origin: Other settings that determine the examples, by name.
  """

  data: DataConfig
  source: str
  vocabulary: str
  origin: Mapping[str, prepared_examples.Setting] = dataclasses.field(default_factory=dict)

  def settings(self) -> dict[str, prepared_examples.Setting]:
    """Returns the settings that determine the examples, except their source."""
    digest = wordpieces.load(self.vocabulary).digest
    return {"vocabulary": digest, **self.data.settings(), **self.origin}

  def batch_settings(self, *, seed: int) -> dict[str, prepared_examples.Setting]:
    """Returns all settings that determine the batches of a training, by name."""
    if prepared_examples.EXAMPLES.is_at(self.source):
      examples = prepared_examples.read_manifest(self.source).fingerprint
    else:
      read = "questions" if self.origin else tagged_examples.fingerprint(self.source)
      examples = f"pipeline {batches.PIPELINE} of {read}"
    content = {"examples": examples, "seed": seed}
    return {**self.settings(), **self.data.settings_of_batches(), **content}

  def streams(self, *, seed: int) -> batches.Streams:
    """Opens the batches of a training, shuffled and repeated forever."""
    return batches.Streams(
      functools.partial(self.open, seed=seed, training=True),
      num_streams=self.data.data_streams,
      batch_size=self.data.batch_size,
    )

  def open(
    self, *, batch_size: int, seed: int, training: bool, shard: batches.Shard | None = None
  ) -> batches.Batches:
    """Opens the examples; prepared ones keep the seed that they were prepared with.

    Args:
      seed: Seeds order and masks.
      training: Whether to shuffle and repeat forever; otherwise makes one pass in order.
      shard: The part of the data that this process reads.
    """
    if prepared_examples.EXAMPLES.is_at(self.source):
      return prepared_examples.open_batches(
        self.source,
        settings=self.settings(),
        order="shuffled" if training else "corpus",
        batch_size=batch_size,
        shard=shard,
      )
    # A task needs TensorFlow, which takes seconds to import and is missing on some machines.
    from realm_jax.data import input_pipeline

    return input_pipeline.task_batches(
      **self.data.task(source=self.source, vocabulary=self.vocabulary),
      batch_size=batch_size,
      seed=seed,
      training=training,
      shard=shard,
    )


def question_examples(
  questions: Sequence[Question], *, data: QuestionData, source: str, store: PassageStore
) -> Examples:
  """Returns the examples of questions to be answered from a corpus.

  Examples refer to positions in the file, and the labels depend on the answers and the corpus, so
  all three are part of the settings.
  """
  return Examples(
    data=data,
    source=source,
    vocabulary=store.vocabulary_directory,
    origin={
      "questions_digest": texts_digest(questions),
      "answers_digest": answers_digest(questions),
      "corpus_fingerprint": store.fingerprint,
    },
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadingOrder(choices.Checked):
  """The number and order of the examples.

  Attributes:
    num_epochs: Number of passes over the corpus, if shuffled and without `num_examples`.
    num_examples: Examples per stream; "corpus" may have fewer. None lets `num_epochs` decide.
    order: "shuffled", for training, or "corpus", one pass in order for evaluation.
    seed: Seeds order and masks.
    data_streams: Number of streams, the same as in training.
  """

  num_epochs: choices.Count = 1
  num_examples: choices.Count | None = None
  order: Literal["shuffled", "corpus"] = "shuffled"
  seed: choices.Seed = 0
  data_streams: choices.Count = 1

  def streams(self, examples: Examples) -> Iterator[Iterator[batches.Features]]:
    """Yields the parts of each stream, up to the number of rows wanted."""
    for stream in range(self.data_streams):
      shard = batches.Shard.of(stream, self.data_streams)
      once = {"batch_size": _ROWS_AT_ONCE, "seed": self.seed, "training": False, "shard": shard}
      if self.order == "corpus":
        rows = _real_rows(examples.open(**once))
        yield rows if self.num_examples is None else _first_rows(rows, self.num_examples)
        continue
      wanted = self.num_examples or self.num_epochs * sum(
        len(part["query"]) for part in _real_rows(examples.open(**once))
      )
      yield _first_rows(examples.open(**{**once, "training": True}), wanted)

  def write(
    self, writer: prepared_examples.Writer, examples: Examples, *, keep: Keep | None = None
  ) -> None:
    """Writes the examples of each stream.

    Args:
      keep: Returns the examples of a part to write; None writes all.

    Raises:
      ValueError: If a stream has no examples; the message says for how many there are enough.
    """
    try:
      for number, parts in enumerate(self.streams(examples), 1):
        what = f"parts of {_ROWS_AT_ONCE} examples, stream {number} of {self.data_streams}"
        kept = parts if keep is None else map(keep, parts)
        if not writer.write_stream(progress.track(kept, what=what)):
          raise batches.TooFewExamplesError(f"stream {number} has no examples")
    except batches.TooFewExamplesError as error:
      enough = self._most_streams(examples) if keep is None else None
      if enough is None:
        message = f"{examples.source} yields no examples: it is empty, or all are rejected"
      else:
        message = (
          f"{examples.source} has too few examples for data_streams={self.data_streams}; there are "
          f"enough for {enough}"
        )
      raise ValueError(message) from error

  def _most_streams(self, examples: Examples) -> int | None:
    """Returns the largest number of streams, below this one, that all have examples, or None."""
    once = _real_rows(examples.open(batch_size=_ROWS_AT_ONCE, seed=self.seed, training=False))
    most = min(self.data_streams - 1, sum(len(part["query"]) for part in once))
    train = functools.partial(examples.open, seed=self.seed, training=True)
    return batches.most_streams(train, range(most, 0, -1))


def _real_rows(parts: batches.Batches) -> Iterator[batches.Features]:
  """Yields the batches of one pass without the padding rows of the last one."""
  for part in parts:
    # Every query begins with [CLS], which is not 0.
    real = part["query"][:, 0] != 0
    yield {name: rows[real] for name, rows in part.items()}


def _first_rows(parts: Iterator[batches.Features], count: int) -> Iterator[batches.Features]:
  for part in parts:
    yield {name: rows[:count] for name, rows in part.items()}
    count -= len(part["query"])
    if count <= 0:
      break
