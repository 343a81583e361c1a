"""Passages as a span reader reads them: their spans, and their contribution to an answer.

Answers are whole words, as in the released ORQA. The score of a span of words is that of the best
span of wordpieces that begins in its first word and ends in its last.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import log_softmax

from realm_jax.answering.explanation import AnswerOption, Evidence, Explanation, leave_one_out
from realm_jax.answering.wordpiece_offsets import Offsets

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadPassage:
  """A passage, its wordpieces with byte offsets, and the spans in it that may be answers."""

  passage_id: int
  title: str
  text: str
  edited: bool
  score: float
  spans: WordSpans
  offsets: Offsets

  def byte_span(self, span: int) -> tuple[int, int]:
    """Returns the first byte and the byte limit of a span."""
    starts, limits = self.offsets
    return int(starts[self.spans.firsts_S[span]]), int(limits[self.spans.lasts_S[span]])

  def char_span(self, span: int) -> tuple[int, int]:
    """Returns the first character and the character limit of a span."""
    raw = self.text.encode()
    start, limit = (len(raw[:byte].decode(errors="ignore")) for byte in self.byte_span(span))
    return start, limit

  def words(self, span: int) -> str:
    """Returns the text of a span."""
    start, limit = self.byte_span(span)
    return self.text.encode()[start:limit].decode(errors="ignore")


def text_key(text: str) -> str:
  """Returns a key that is equal for answers that count as the same."""
  return " ".join(text.casefold().split())


def best_spans(passages: Sequence[ReadPassage]) -> Iterator[tuple[int, int, float]]:
  """Yields slot, span and log p(y,z|x) of the spans of all passages, best first."""
  sizes_K = [len(passage.spans.log_probs_S) for passage in passages]
  if not any(sizes_K):
    return
  slots_S = np.repeat(np.arange(len(passages)), sizes_K)
  spans_S = np.concatenate([np.arange(size) for size in sizes_K])
  log_probs_S = np.concatenate([passage.spans.log_probs_S for passage in passages])
  joint_S = log_softmax(_log_weights(passages))[slots_S] + log_probs_S
  for index in np.argsort(-joint_S, kind="stable").tolist():
    yield int(slots_S[index]), int(spans_S[index]), float(joint_S[index])


def explain_spans(
  query: str,
  passages: Sequence[ReadPassage],
  *,
  num_read: int,
  num_answers: int,
  target: str | None = None,
) -> Explanation:
  """Explains the most likely answer, or the target, by the passages.

  Passages come best first; those from `num_read` on are in reserve.

  Raises:
    ValueError: If no passage has any words.
  """
  candidates = _Candidates(passages, num_read=num_read, target=target)
  likeliest = chosen = candidates.ranked[0]
  listed = candidates.ranked
  if target is not None:
    chosen = candidates.keys.index(text_key(target))
    listed = [chosen, *(c for c in listed if c != chosen)]
  evidence = [candidates.evidence(slot, chosen) for slot in candidates.read]
  return Explanation(
    query=query,
    answers=tuple(candidates.option(c) for c in listed[:num_answers]),
    likeliest=candidates.text(likeliest),
    null_share=None,
    passages=tuple(sorted(evidence, key=lambda passage: -passage.retrieval_probability)),
  )


class _Candidates:
  """Candidate answers to a question, with and without each passage.

  Attributes:
    keys: Key of each candidate; see `text_key`.
    ranked: Candidates with nonzero probability, most likely first.
    read: Slots of the passages that were read and have words.
  """

  def __init__(self, passages: Sequence[ReadPassage], *, num_read: int, target: str | None):
    self._passages = passages
    self._target = target
    self._spans_K = [_spans_by_text(passage) for passage in passages]
    texts = dict.fromkeys(key for spans_of in self._spans_K for key in spans_of)
    if target is not None:
      texts.setdefault(text_key(target))
    self.keys = list(texts)
    num_read = min(num_read, len(passages))
    self.read = [slot for slot in range(num_read) if self._spans_K[slot]]
    if not self.read:
      raise ValueError("no passage is left to read; undo an edit")
    scores_K = np.full(num_read + 1, -np.inf)  # the last slot is the reserve
    scores_K[: len(passages)] = _log_weights(passages)
    self._log_probs_CxK = np.full((len(self.keys), num_read + 1), -np.inf)
    for slot, spans_of in enumerate(self._spans_K):
      for c, key in enumerate(self.keys):
        if key in spans_of:
          self._log_probs_CxK[c, slot] = passages[slot].spans.log_probs_S[spans_of[key][0]]
    valid_K = np.isfinite(scores_K)
    self._weights = leave_one_out(
      scores_K, self._log_probs_CxK, valid_K=valid_K, corpus_K=valid_K, over_passages="best"
    )
    log_probs_C = self._weights.log_probs_C
    order = np.argsort(-log_probs_C, kind="stable").tolist()
    self.ranked = [c for c in order if np.isfinite(log_probs_C[c])]
    scores = np.array([passage.score for passage in passages[:num_read]])
    self._retrieval_K = np.exp(log_softmax(scores)).tolist()

  def text(self, c: int) -> str:
    """Returns a candidate as written in the passage with its best span."""
    with np.errstate(divide="ignore"):
      joint_K = np.log(self._weights.prior_K) + self._log_probs_CxK[c]
    for slot in (int(np.argmax(joint_K)), *range(len(self._passages))):
      if self.keys[c] in self._spans_K[slot]:
        return self._passages[slot].words(self._spans_K[slot][self.keys[c]][0])
    assert self._target is not None, "every other candidate occurs in a passage"
    return self._target.strip()

  def option(self, c: int) -> AnswerOption:
    return AnswerOption(
      text=self.text(c),
      probability=float(np.exp(self._weights.log_probs_C[c])),
      probability_without_retrieval=None,
      probability_given_best=float(np.exp(self._log_probs_CxK[c, self.read].max())),
    )

  def evidence(self, slot: int, c: int) -> Evidence:
    """Returns the contribution of a passage to an answer."""
    passage, spans_of = self._passages[slot], self._spans_K[slot]
    without_C = self._weights.log_probs_without_KxC[slot]
    best_without = int(np.argmax(without_C))
    answer_probability = float(np.exp(self._log_probs_CxK[c, slot]))
    return Evidence(
      passage_id=passage.passage_id,
      title=passage.title,
      text=passage.text,
      edited=passage.edited,
      retrieval_probability=self._retrieval_K[slot],
      answer_probability=answer_probability,
      contribution=float(self._weights.prior_K[slot]) * answer_probability,
      utility=None,
      says=passage.words(next(iter(spans_of.values()))[0]),
      spans=tuple(map(passage.char_span, sorted(spans_of.get(self.keys[c], ())))),
      probability_without=float(np.exp(without_C[c])),
      answer_without=self.text(best_without) if np.isfinite(without_C[best_without]) else "",
    )


def _spans_by_text(passage: ReadPassage) -> dict[str, list[int]]:
  """Returns the spans of each answer key, best first; the key of the best span comes first."""
  spans_of = defaultdict(list)
  for span in np.argsort(-passage.spans.log_probs_S, kind="stable").tolist():
    if key := text_key(passage.words(span)):
      spans_of[key].append(span)
  return spans_of


def _log_weights(passages: Sequence[ReadPassage]) -> np.ndarray:
  """Returns log p(z|x) under one softmax over the spans of all passages, up to a constant."""
  return np.array([passage.score + passage.spans.log_total for passage in passages])
