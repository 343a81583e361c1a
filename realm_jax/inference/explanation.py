"""What an answer was read from, and what it would be without each passage.

All figures follow from p(z|x) and p(y|z,x) of the passages read and of one more, the *reserve*:
what the index would have given next. A passage left out makes room for it, as if it had been
removed from the corpus.
"""

import dataclasses
from typing import Literal

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerOption:
  """One of the likeliest answers.

  Attributes:
    text: The answer as a passage writes it, or its wordpieces joined.
    probability: What the answers are ordered by. For a `[MASK]`, p(y|x), summed over the passages;
      for a question, p(y,z|x) of the best span with these words.
    probability_without_retrieval: p(y|null,x), of the same model with the empty passage alone; None
      for a model that answers with words of a passage.
    probability_given_best: p(y|z,x) of the passage under which it is likeliest, null aside.
  """

  text: str
  probability: float
  probability_without_retrieval: float | None
  probability_given_best: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
  """A passage that was read, and its part in the best answer y.

  Attributes:
    passage_id: Row of the store; -1 for the null passage.
    title: Empty for the null passage.
    text: Empty for the null passage.
    edited: Whether the passage is not the corpus's own.
    retrieval_probability: p(z|x).
    answer_probability: p(y|z,x).
    contribution: p(y,z|x). For a `[MASK]` it is the product of the two, and p(y|x) is the sum of
      the contributions. For a question it is the best span's share of the one softmax over the
      spans of all passages, and the highest contribution is the answer's probability.
    utility: log p(y|z,x) - log p(y|null,x), in nats (Guu et al. 2020, section 4.4); None without a
      null passage.
    says: Likeliest answer with this passage alone.
    spans: Where the answer stands in the text, in characters.
    probability_without: The answer's probability were the passage not in the corpus.
    answer_without: Likeliest answer then; empty if no passage would be left.
  """

  passage_id: int
  title: str
  text: str
  edited: bool
  retrieval_probability: float
  answer_probability: float
  contribution: float
  utility: float | None
  says: str
  spans: tuple[tuple[int, int], ...]
  probability_without: float
  answer_without: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerationRanking:
  """What one index generation gives for a query.

  Attributes:
    generation: Its number.
    training_step: Step of the passage embeddings.
    own_query_encoder: Whether the query was embedded with the parameters of that step; without its
      checkpoint the query is embedded with today's.
    passage_ids: Best first.
  """

  generation: int
  training_step: int
  own_query_encoder: bool
  passage_ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
  """The answers to one query, and what the best of them was read from.

  Attributes:
    query: The text asked.
    answers: Likeliest first, but a target that was asked for comes before all. Answers to a
      `[MASK]` have as many wordpieces as the likeliest.
    likeliest: The likeliest answer.
    null_share: p(null|x), the share of the null passage; None where none is read.
    passages: Likeliest first, the null passage among them.
    rankings: Oldest generation first; empty unless asked for. Edits are in no generation.
  """

  query: str
  answers: tuple[AnswerOption, ...]
  likeliest: str
  null_share: float | None
  passages: tuple[Evidence, ...]
  rankings: tuple[GenerationRanking, ...] = ()


@dataclasses.dataclass(frozen=True)
class LeaveOneOut:
  """Candidate answers C under K slots of passages, of which the last is the reserve.

  Attributes:
    prior_K: p(z|x); 0 for the reserve and for slots without a passage.
    log_probs_C: Log probability of each answer.
    log_probs_without_KxC: The same without the passage of a slot.
  """

  prior_K: np.ndarray
  log_probs_C: np.ndarray
  log_probs_without_KxC: np.ndarray


def leave_one_out(
  scores_K: np.ndarray,
  log_probs_CxK: np.ndarray,
  *,
  valid_K: np.ndarray,
  corpus_K: np.ndarray,
  over_passages: Literal["sum", "best"] = "sum",
) -> LeaveOneOut:
  """Computes the probability of each answer with all passages, and with each of them left out.

  Args:
    scores_K: log p(z|x) up to a constant.
    log_probs_CxK: log p(y|z,x).
    valid_K: False for slots that hold no passage.
    corpus_K: False for the null passage, whose place nothing takes.
    over_passages: Whether an answer's probability is the sum of its p(y,z|x) over the passages, or
      the best of them.
  """
  size = len(scores_K)
  read_K = valid_K & (np.arange(size) < size - 1)

  def answer_with(used_K):
    log_prior_K = log_softmax(np.where(used_K, scores_K, -np.inf))
    joint_CxK = log_prior_K + log_probs_CxK
    log_probs_C = _logsumexp(joint_CxK) if over_passages == "sum" else joint_CxK.max(axis=-1)
    return np.exp(log_prior_K), log_probs_C

  prior_K, log_probs_C = answer_with(read_K)
  without = []
  for slot in range(size):
    used_K = read_K.copy()
    if read_K[slot]:
      used_K[slot] = False
      used_K[-1] = valid_K[-1] and corpus_K[slot]
    nothing_C = np.full_like(log_probs_C, -np.inf)
    without.append(answer_with(used_K)[1] if used_K.any() else nothing_C)
  return LeaveOneOut(prior_K, log_probs_C, np.stack(without))


def log_softmax(values_K: np.ndarray) -> np.ndarray:
  """Returns the log of the softmax over the last axis; -inf stays."""
  return values_K - _logsumexp(values_K)


def _logsumexp(values: np.ndarray) -> np.ndarray:
  highest = np.max(values, axis=-1, keepdims=True)
  highest = np.where(np.isfinite(highest), highest, 0)
  with np.errstate(divide="ignore"):
    return np.log(np.sum(np.exp(values - highest), axis=-1)) + highest[..., 0]
