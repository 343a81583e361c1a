"""Aggregates the span scores of one passage to spans of whole words.

Answers are whole words, as in the released ORQA. The score of a span of words is that of the best
span of wordpieces that begins in its first word and ends in its last.
"""

import dataclasses

import numpy as np

_NO_SPAN = np.finfo(np.float32).min


@dataclasses.dataclass(frozen=True)
class WordSpans:
  """The S spans of whole words of a passage, in the order of the text; wordpieces count from 0.

  Attributes:
    firsts_S: First wordpiece of each span.
    lasts_S: Last wordpiece of each span.
    log_probs_S: log p(y|z,x) of the best span of wordpieces in these words.
    log_total: Logsumexp of all span scores of the passage.
  """

  firsts_S: np.ndarray
  lasts_S: np.ndarray
  log_probs_S: np.ndarray
  log_total: float


def by_words(logits_TxW: np.ndarray, continues_T: np.ndarray) -> WordSpans:
  """Returns the best span of wordpieces for each first and last word.

  Args:
    logits_TxW: Scores of the spans of wordpieces t to t + w in one passage's body; the lowest
      float32 marks no span.
    continues_T: Whether a wordpiece continues the previous word.
  """
  length = len(logits_TxW)
  places_T = np.arange(length)
  begins_T = ~continues_T
  # A passage that was cut inside a word begins with the rest of it.
  word_firsts_T = np.maximum.accumulate(np.where(begins_T, places_T, 0))
  ends_T = np.append(begins_T[1:], True)[:length]
  word_lasts_T = np.minimum.accumulate(np.where(ends_T, places_T, length)[::-1])[::-1]
  firsts, widths = np.nonzero(logits_TxW > _NO_SPAN)
  if not len(firsts):
    return WordSpans(firsts, firsts, np.zeros(0), -np.inf)
  logits = logits_TxW[firsts, widths].astype(np.float64)
  keys = word_firsts_T[firsts] * length + word_lasts_T[firsts + widths]
  unique, inverse = np.unique(keys, return_inverse=True)
  best_S = np.full(len(unique), -np.inf)
  np.maximum.at(best_S, inverse, logits)
  log_total = float(np.logaddexp.reduce(logits))
  return WordSpans(unique // length, unique % length, best_S - log_total, log_total)
