"""Splits the questions of an Open-QA set as the original did, and writes their manifest."""

import itertools
from collections.abc import Sequence

from realm_jax import atomic_files
from realm_jax.data import question_sets


def prepare_questions(
  *,
  train: Sequence[str],
  test: Sequence[str],
  output: str,
  dataset: question_sets.Dataset = "custom",
) -> dict:
  """Writes `output`: `train.jsonl`, `dev.jsonl`, `test.jsonl` and `questions_manifest.json`.

  The development set is the tenth of the training questions that the original took.

  Args:
    train: files of training questions: JSON Lines with `question` and `answer`, or as published
      with WebQuestions, CuratedTREC, TriviaQA or SQuAD; plain or gzip.
    test: files of test questions.
    output: directory to write; replaced as a whole when finished.
    dataset: a published set must have its published counts.

  Returns:
    The manifest.

  Raises:
    FileNotFoundError: if a file is not there.
    ValueError: if a file or a question is not usable, or the counts are not the published ones.
  """
  read = lambda paths: itertools.chain.from_iterable(map(question_sets.read_raw, paths))  # noqa: E731
  splits = question_sets.make_splits(read(train), read(test), dataset=dataset)
  with atomic_files.new_directory(output) as directory:
    manifest = question_sets.write_splits(directory, splits, dataset=dataset)
  counts = (f"{name} {file['questions']}" for name, file in manifest["files"].items())
  print(f"{dataset}: {', '.join(counts)}", flush=True)
  return manifest
