"""Writes training examples as memory-mapped arrays, for trainers without TensorFlow."""

import dataclasses
import functools
import os
from collections.abc import Iterator
from typing import Literal

from realm_jax.checkpoints.opening import open_corpus
from realm_jax.data import batches, prepared_examples
from realm_jax.data.answerable_queries import AnswerableQueries
from realm_jax.data.questions import read_questions
from realm_jax.evaluation.answer_matching import find_labels
from realm_jax.foundations import atomic_files, choices, object_store, progress
from realm_jax.text import wordpieces
from realm_jax.text.wordpieces import WordPieces
from realm_jax.training.examples import (
  DataConfig,
  Examples,
  MaskedQueryData,
  PairData,
  QuestionData,
  question_examples,
)

_ROWS_AT_ONCE = 256


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

  def most_streams(self, examples: Examples) -> int | None:
    """Returns the largest number of streams, below this one, that all have examples, or None."""
    once = _real_rows(examples.open(batch_size=_ROWS_AT_ONCE, seed=self.seed, training=False))
    most = min(self.data_streams - 1, sum(len(part["query"]) for part in once))
    train = functools.partial(examples.open, seed=self.seed, training=True)
    return batches.most_streams(train, range(most, 0, -1))


def prepare_examples(
  *,
  task: Literal["masked_queries", "inverse_cloze", "questions"],
  corpus: str,
  output: str,
  vocabulary: str | None = None,
  passages: str | None = None,
  reading: ReadingOrder = ReadingOrder(),
  settings: ExampleSettings = ExampleSettings(),
  answerable_from: str | None = None,
) -> prepared_examples.Manifest:
  """Writes `output`, from which training reads the same batches as it would make from `corpus`.

  After the last prepared example, training continues with the first.

  Args:
    task: "masked_queries" for `realm pretrain`; "inverse_cloze" for `realm train_retriever`;
      "questions" for `realm finetune`.
    corpus: Directory of a corpus, from `realm prepare_corpus`; or, for "questions", JSON Lines.
    output: Directory to write; replaced as a whole when finished.
    vocabulary: Directory with `vocab.txt`; None uses that of the corpus. Questions always use that
      of the passages.
    passages: Directory of the knowledge corpus for questions, in which their answers are located.
    reading: Number and order of the examples; unanswerable ones are counted before they are left
      out.
    settings: The settings of the training.
    answerable_from: Directory of a knowledge corpus; keeps the masked queries that one of its
      passages answers. None keeps all.
  """
  object_store.check_local(output=output)
  prepared_examples.EXAMPLES.check(output)
  if prepared_examples.EXAMPLES.is_at(corpus):
    raise ValueError(f"{corpus} has examples that are already prepared; give their corpus")
  if (task == "questions") != (passages is not None):
    raise ValueError(
      f"passages={passages} with task={task!r}; give the passages that questions search, and "
      "only them"
    )
  if task == "questions" and vocabulary is not None:
    raise ValueError(f"vocabulary={vocabulary}: {task} use that of the passages; omit it")
  if answerable_from is not None and task != "masked_queries":
    raise ValueError(
      f"answerable_from={answerable_from} with task={task!r}; only masked queries are "
      "answered by passages, so omit it"
    )
  data = settings.data(task)
  vocabulary = vocabulary or os.path.join(passages or corpus, "vocabulary")
  examples, labels = Examples(data=data, source=corpus, vocabulary=vocabulary), None
  if passages is not None and isinstance(data, QuestionData):
    questions, store = read_questions(corpus), open_corpus(passages)
    examples = question_examples(questions, data=data, source=corpus, store=store)
    labels = find_labels(questions, file=corpus, store=store, query_length=data.query_length)
  selected = _answerable(answerable_from, wordpieces.load(vocabulary))
  with atomic_files.new_directory(output, kind=prepared_examples.EXAMPLES) as directory:
    writer = prepared_examples.Writer(directory, vocab_size=wordpieces.load(vocabulary).vocab_size)
    try:
      _write_streams(writer, examples, reading, selected)
    except batches.TooFewExamplesError as error:
      enough = reading.most_streams(examples) if selected is None else None
      if enough is None:
        message = f"{corpus} yields no examples: it is empty, or all are rejected"
      else:
        message = (
          f"{corpus} has too few examples for data_streams={reading.data_streams}; there are "
          f"enough for {enough}"
        )
      raise ValueError(message) from error
    if labels is not None:
      writer.write_arrays(labels.arrays())
    manifest = writer.finish(
      settings=examples.settings(),
      order=reading.order,
      seed=reading.seed,
      selection=None if selected is None else selected.settings(),
    )
  print(f"{output}: {sum(manifest.num_examples):,} examples, {reading.order}", flush=True)
  return manifest


def _write_streams(
  writer: prepared_examples.Writer,
  examples: Examples,
  reading: ReadingOrder,
  selected: AnswerableQueries | None,
) -> None:
  for number, parts in enumerate(reading.streams(examples), 1):
    what = f"parts of {_ROWS_AT_ONCE} examples, stream {number} of {reading.data_streams}"
    kept = parts if selected is None else map(selected.keep, parts)
    if not writer.write_stream(progress.track(kept, what=what)):
      raise batches.TooFewExamplesError(f"stream {number} has no examples")


def _answerable(corpus: str | None, vocabulary: WordPieces) -> AnswerableQueries | None:
  if corpus is None:
    return None
  store = open_corpus(corpus)
  if store.vocabulary.digest != vocabulary.digest:
    raise ValueError(
      f"answerable_from={corpus} has another vocabulary than the corpus; prepare both with the same"
    )
  return AnswerableQueries(store)


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
