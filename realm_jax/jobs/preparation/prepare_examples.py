"""Writes training examples as memory-mapped arrays, for trainers without TensorFlow."""

import os
from typing import Literal

from realm_jax.checkpoints.opening import open_corpus
from realm_jax.data import prepared_examples
from realm_jax.data.answerable_queries import AnswerableQueries
from realm_jax.data.questions import read_questions
from realm_jax.evaluation.answer_matching import find_labels
from realm_jax.foundations import atomic_files, object_store
from realm_jax.text import wordpieces
from realm_jax.text.wordpieces import WordPieces
from realm_jax.training.recipes.examples import (
  Examples,
  ExampleSettings,
  QuestionData,
  ReadingOrder,
  question_examples,
)


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
    reading.write(writer, examples, keep=selected and selected.keep)
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


def _answerable(corpus: str | None, vocabulary: WordPieces) -> AnswerableQueries | None:
  if corpus is None:
    return None
  store = open_corpus(corpus)
  if store.vocabulary.digest != vocabulary.digest:
    raise ValueError(
      f"answerable_from={corpus} has another vocabulary than the corpus; prepare both with the same"
    )
  return AnswerableQueries(store)
