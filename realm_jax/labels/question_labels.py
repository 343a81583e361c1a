"""Finds where the answers of training questions occur in the passages."""

import os
from collections.abc import Sequence

from absl import logging

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import Question
from realm_jax.labels.answer_matching import AnswerMatcher, match_answers


def find_labels(
  questions: Sequence[Question],
  *,
  file: str,
  store: PassageStore,
  query_length: int,
) -> AnswerMatcher:
  """Finds the answers, and logs how many questions cannot be learned from.

  Raises:
    ValueError: If no passage contains an answer to any question.
  """
  # Some machines lack TensorFlow; there, labels come with prepared examples.
  from realm_jax.text import tokenization

  tokenizer = tokenization.load(os.path.join(store.directory, "vocabulary"))
  matcher = match_answers(questions, store=store, tokenizer=tokenizer)
  if matcher.unanswerable == len(questions):
    raise ValueError(
      f"none of the {len(questions)} questions in {file} has its answer in a passage; check that "
      "this is the right corpus"
    )
  encoded = tokenizer.encode_batch([question.text for question in questions])
  logging.info(
    "%d questions; %d have no answer in any passage and do not contribute; %d are longer than "
    "query_length=%d and are truncated",
    len(questions),
    matcher.unanswerable,
    sum(len(ids) > query_length - 2 for ids in encoded),
    query_length,
  )
  return matcher
