"""Writes the examples of a training as memory-mapped arrays, for trainers without TensorFlow."""

import os
from collections.abc import Iterator
from typing import Literal

from realm_jax import atomic_files, object_store, progress, wordpieces
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches, prepared_examples
from realm_jax.data.questions import read_questions
from realm_jax.labels.question_labels import find_labels
from realm_jax.runs.example_sources import (
  InverseClozeExamples,
  MaskedQueryExamples,
  QuestionExamples,
)

_ROWS_AT_ONCE = 256
_KINDS = {kind.kind: kind for kind in (MaskedQueryExamples, InverseClozeExamples, QuestionExamples)}


def prepare_examples(
  *,
  task: Literal["masked_queries", "inverse_cloze", "questions"],
  corpus: str,
  output: str,
  vocabulary: str | None = None,
  passages: str | None = None,
  answer_rule: Literal["words", "original"] = "words",
  num_epochs: int = 1,
  num_examples: int | None = None,
  order: Literal["shuffled", "corpus"] = "shuffled",
  seed: int = 0,
  data_streams: int = 1,
  query_length: int | None = None,
  passage_length: int = 288,
  max_masks: int = 10,
  mask: batches.Masking = "salient_span",
  removal_rate: float = 0.9,
  hide_salient_spans: bool = False,
  neighbours: int = 1,
) -> prepared_examples.Manifest:
  """Writes `output`, from which a training reads the batches that it would have made of `corpus`.

  A training that reads longer than the prepared epochs begins them anew.

  Args:
    task: "masked_queries" for `realm pretrain`, "inverse_cloze" for `realm pretrain_ict`,
      "questions" for `realm finetune`.
    corpus: directory of tagged examples, from `realm prepare_corpus`; or, for "questions", JSON
      Lines.
    output: directory to write; replaced as a whole when finished.
    vocabulary: directory with `vocab.txt`; none: that of the corpus. Questions have that of the
      passages.
    passages: directory of the knowledge corpus that questions are asked of. Where their answers lie
      in it is prepared, too.
    answer_rule: by which they are found, see `realm finetune`.
    num_epochs: as many examples as so many passes over the corpus give.
    num_examples: of each stream; none: decided by `num_epochs`.
    order: "shuffled", to train with, or "corpus": one pass in order, to evaluate with.
    seed: of order and masks.
    data_streams: parts of the corpus read side by side; as many as the training will have.
    query_length: wordpieces of a query; none: 96 for masked queries, 64 for others.
    passage_length: wordpieces of a passage, for "inverse_cloze".
    max_masks: masked wordpieces predicted in a query, for "masked_queries".
    mask: what is masked, for "masked_queries".
    removal_rate: how often the pseudo-query's sentence leaves its passage.
    hide_salient_spans: whether salient spans of a pseudo-query are masked.
    neighbours: see `realm pretrain_ict`.

  Returns:
    The manifest.

  Raises:
    FileNotFoundError: if the corpus or the vocabulary is missing.
    ValueError: if a setting is wrong, the corpus gives no example, or the passages hold no answer.
  """
  object_store.check_local(output=output)
  if num_epochs < 1 or (num_examples is not None and num_examples < 1) or data_streams < 1:
    raise ValueError(
      f"num_epochs={num_epochs}, num_examples={num_examples}, data_streams={data_streams}; give at "
      "least 1 of each"
    )
  if prepared_examples.is_prepared(corpus):
    raise ValueError(f"{corpus} holds examples that are prepared already; name their corpus")
  if (task == "questions") != (passages is not None):
    raise ValueError(
      f"passages={passages} with task={task!r}; give the passages that questions are asked of, and "
      "only them"
    )
  if task == "questions" and vocabulary is not None:
    raise ValueError(f"vocabulary={vocabulary}: questions have that of the passages; leave it out")
  if query_length is None:
    query_length = _KINDS[task].query_length
  vocabulary = vocabulary or os.path.join(passages or corpus, "vocabulary")
  given = {"source": corpus, "vocabulary": vocabulary, "query_length": query_length}
  labels = None
  if task == "masked_queries":
    examples = MaskedQueryExamples(**given, mask=mask, max_masks=max_masks)
  elif task == "inverse_cloze":
    examples = InverseClozeExamples(
      **given,
      passage_length=passage_length,
      removal_rate=removal_rate,
      hide_salient_spans=hide_salient_spans,
      neighbours=neighbours,
    )
  else:
    asked, store = read_questions(corpus), PassageStore(passages)
    examples = QuestionExamples.of(
      asked, source=corpus, store=store, query_length=query_length, answer_rule=answer_rule
    )
    labels = find_labels(
      asked, questions=corpus, store=store, answer_rule=answer_rule, query_length=query_length
    )
  with atomic_files.new_directory(output) as directory:
    writer = prepared_examples.Writer(directory, vocab_size=wordpieces.load(vocabulary).vocab_size)
    for stream in range(data_streams):
      shard = batches.Shard(stream, data_streams) if data_streams > 1 else None
      once = {"batch_size": _ROWS_AT_ONCE, "seed": seed, "training": False, "shard": shard}
      if order == "corpus":
        parts = _real_rows(examples.open(**once))
      else:
        wanted = num_examples or num_epochs * sum(
          len(part["query"]) for part in _real_rows(examples.open(**once))
        )
        parts = _first_rows(examples.open(**{**once, "training": True}), wanted)
      what = f"parts of {_ROWS_AT_ONCE} examples, stream {stream + 1} of {data_streams}"
      if not writer.write_stream(progress.track(parts, what=what)):
        raise ValueError(f"{corpus} gives no example: it is empty or all were rejected")
    if labels is not None:
      writer.write_arrays(labels.arrays())
    manifest = writer.finish(settings=examples.settings(), order=order, seed=seed)
  print(f"{output}: {sum(manifest.num_examples):,} examples, {order}", flush=True)
  return manifest


def _real_rows(parts: batches.Batches) -> Iterator[batches.Features]:
  """Yields the batches of one pass without the rows that fill up the last one."""
  for part in parts:
    # Every query begins with [CLS], which is not 0.
    real = part["query"][:, 0] != 0
    yield {name: rows[real] for name, rows in part.items()}


def _first_rows(parts: batches.Batches, count: int) -> Iterator[batches.Features]:
  while count > 0:
    part = next(parts)
    yield {name: rows[:count] for name, rows in part.items()}
    count -= len(part["query"])
