"""Finds where the answers of training questions occur in the passages."""

from collections.abc import Sequence

import numpy as np
from absl import logging

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import Question, encode_questions
from realm_jax.evaluation.answer_matching import AnswerMatcher, match_answers


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
  tokenizer = store.tokenizer
  matcher = match_answers(questions, store=store, tokenizer=tokenizer)
  if matcher.unanswerable == len(questions):
    raise ValueError(
      f"none of the {len(questions)} questions in {file} has its answer in a passage; check that "
      "this is the right corpus"
    )
  encoded = encode_questions([question.text for question in questions], tokenizer)
  logging.info(
    "%d questions; %d have no answer in any passage and do not contribute; %d are longer than "
    "query_length=%d and are truncated",
    len(questions),
    matcher.unanswerable,
    sum(len(ids) > query_length - 2 for ids in encoded),
    query_length,
  )
  return matcher


def warn_of_wide_answers(
  questions: Sequence[Question], matcher: AnswerMatcher, *, max_span_width: int
) -> None:
  """Logs how many questions have only answers that the reader cannot give."""
  widths = matcher.narrowest()
  wide = np.flatnonzero(widths > max_span_width)
  if len(wide):
    logging.warning(
      "%d of %d questions have only answers wider than max_span_width=%d, such as %r (%d "
      "wordpieces): the reader learns nothing from them; max_span_width=%d holds all",
      len(wide),
      len(questions),
      max_span_width,
      questions[wide[0]].answer,
      widths[wide[0]],
      widths.max(),
    )
