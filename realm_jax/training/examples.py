"""Sources of training examples: a SeqIO task, or arrays prepared from one in advance."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax

from realm_jax.corpus import tagged_examples
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches, prepared_examples
from realm_jax.data.questions import Question, answers_digest, texts_digest
from realm_jax.foundations import choices
from realm_jax.text import wordpieces


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
