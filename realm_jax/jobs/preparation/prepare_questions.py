"""Converts a public Open-QA dataset, with the original's split into train, dev and test."""

import itertools
from collections.abc import Sequence

from realm_jax.data import question_sets
from realm_jax.foundations import atomic_files


def prepare_questions(
  *,
  train: Sequence[str],
  test: Sequence[str],
  output: str,
  dataset: question_sets.Dataset = "custom",
) -> dict:
  """Writes `output`: `train.jsonl`, `dev.jsonl`, `test.jsonl` and `questions_manifest.json`.

  The development set is the same tenth of the training questions as in the original.

  Args:
    train: Files of training questions: JSON Lines with `question` and `answer`, or the published
      files of WebQuestions, CuratedTREC, TriviaQA or SQuAD; plain or gzip.
    test: Files of test questions.
    output: Directory to write; replaced if it exists.
    dataset: Name of the dataset; the counts of a published one are checked.
  """
  question_sets.QUESTIONS.check(output)
  read = lambda paths: itertools.chain.from_iterable(map(question_sets.read_raw, paths))  # noqa: E731
  splits = question_sets.make_splits(read(train), read(test), dataset=dataset)
  with atomic_files.new_directory(output, kind=question_sets.QUESTIONS) as directory:
    manifest = question_sets.write_splits(directory, splits, dataset=dataset)
  counts = (f"{name} {file['questions']}" for name, file in manifest["files"].items())
  print(f"{dataset}: {', '.join(counts)}", flush=True)
  return manifest
