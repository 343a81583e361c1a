"""Span scores of one passage, put together by the whole words that the spans lie in."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class WordSpans:
  """The S spans of whole words of a passage; wordpieces count from its first.

  Attributes:
    firsts_S: first wordpiece of each.
    lasts_S: last one.
    log_probs_S: log p(span|z,x), the sum of all spans that lie in these words.
    log_total: log of the summed exponentials of all span scores of the passage.
  """

  firsts_S: np.ndarray
  lasts_S: np.ndarray
  log_probs_S: np.ndarray
  log_total: float


def by_words(logits_TxW: np.ndarray, continues_T: np.ndarray) -> WordSpans:
  """Adds up the spans that begin in the same word and end in the same word.

  Args:
    logits_TxW: score of the span of the wordpieces t to t + w, for the body of one passage; the
      lowest float32 where there is no span.
    continues_T: whether a wordpiece goes on with the word before it.
  """
  length = len(logits_TxW)
  places_T = np.arange(length)
  begins_T = ~continues_T
  # A passage that was cut inside of a word begins with the rest of it.
  word_firsts_T = np.maximum.accumulate(np.where(begins_T, places_T, 0))
  ends_T = np.append(begins_T[1:], True)[:length]
  word_lasts_T = np.minimum.accumulate(np.where(ends_T, places_T, length)[::-1])[::-1]
  firsts, widths = np.nonzero(logits_TxW > np.finfo(np.float32).min)
  if not len(firsts):
    return WordSpans(firsts, firsts, np.zeros(0), -np.inf)
  logits = logits_TxW[firsts, widths].astype(np.float64)
  keys = word_firsts_T[firsts] * length + word_lasts_T[firsts + widths]
  unique, inverse = np.unique(keys, return_inverse=True)
  highest = logits.max()
  sums_S = np.bincount(inverse, weights=np.exp(logits - highest))
  with np.errstate(divide="ignore"):
    log_probs_S = np.log(sums_S) - np.log(sums_S.sum())
  return WordSpans(
    unique // length, unique % length, log_probs_S, float(highest + np.log(sums_S.sum()))
  )
