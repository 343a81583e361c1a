"""What an answer was read from, and what it would be without: figures of a marginal likelihood.

All follow from p(z|x) and p(y|z,x) of the passages read and of one more, the *reserve*: what the
index would have given next. A passage taken away makes room for it, as if it had been removed from
the corpus.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerOption:
  """One of the likeliest answers.

  Attributes:
    text: the answer, as written in the passage it was found in, or its wordpieces joined.
    probability: p(y|x).
    probability_without_retrieval: p(y|null,x), of the same model with the empty passage alone; None
      of a model that answers with words of a passage.
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
    passage_id: row of the store, -1 for the null passage.
    title: empty for the null passage.
    text: empty for the null passage.
    edited: whether the passage is not the corpus's own.
    retrieval_probability: p(z|x).
    answer_probability: p(y|z,x).
    contribution: p(y,z|x), what the passage adds to p(y|x). Where a `[MASK]` is filled it is the
      product of the two; a span reader's one softmax over the spans of all passages also weighs how
      sure the reader is of each.
    utility: log p(y|z,x) - log p(y|null,x), in nats (Guu et al. 2020, section 4.4); None without a
      null passage.
    says: likeliest answer with this passage alone.
    spans: where the answer stands in the text, in characters.
    probability_without: p(y|x) were the passage not in the corpus.
    answer_without: likeliest answer then; empty if no passage would be left.
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
    generation: its number.
    training_step: step of the passage embeddings.
    own_query_encoder: whether the query was embedded with the parameters of that step, as it was
      then; without its checkpoint the query is embedded as it is now.
    passage_ids: best first.
  """

  generation: int
  training_step: int
  own_query_encoder: bool
  passage_ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
  """The answers to one query, and what the best of them was read from.

  Attributes:
    query: as asked.
    answers: likeliest first; an answer that was asked for comes first all the same. Those to a
      `[MASK]` have as many wordpieces as the likeliest.
    likeliest: the likeliest answer.
    null_share: p(null|x), the share of the null passage; None where none is read.
    passages: likeliest first, the null passage among them.
    rankings: oldest generation first; empty unless asked for. Edits are in no generation.
  """

  query: str
  answers: tuple[AnswerOption, ...]
  likeliest: str
  null_share: float | None
  passages: tuple[Evidence, ...]
  rankings: tuple[GenerationRanking, ...] = ()


@dataclasses.dataclass(frozen=True)
class Weighed:
  """Candidates C under the passages read, K slots, the last of them the reserve.

  Attributes:
    prior_K: p(z|x); 0 for the reserve and for slots without a passage.
    log_probs_C: log p(y|x).
    log_probs_without_KxC: the same without the passage of a slot; for the reserve as it is.
  """

  prior_K: np.ndarray
  log_probs_C: np.ndarray
  log_probs_without_KxC: np.ndarray


def weigh(
  scores_K: np.ndarray, log_probs_CxK: np.ndarray, *, valid_K: np.ndarray, corpus_K: np.ndarray
) -> Weighed:
  """Computes marginals with all passages read, and with each of them taken away.

  Args:
    scores_K: log p(z|x) up to a constant; the last slot is the reserve.
    log_probs_CxK: log p(y|z,x).
    valid_K: False for slots that hold no passage.
    corpus_K: False for the null passage, whose place nothing takes.
  """
  size = len(scores_K)
  read_K = valid_K & (np.arange(size) < size - 1)

  def marginal(used_K):
    log_prior_K = np.where(used_K, scores_K, -np.inf)
    log_prior_K = log_prior_K - _logsumexp(log_prior_K)
    return np.exp(log_prior_K), _logsumexp(log_prior_K + log_probs_CxK)

  prior_K, log_probs_C = marginal(read_K)
  without = []
  for slot in range(size):
    used_K = read_K.copy()
    if read_K[slot]:
      used_K[slot] = False
      used_K[-1] = valid_K[-1] and corpus_K[slot]
    without.append(marginal(used_K)[1] if used_K.any() else np.full_like(log_probs_C, -np.inf))
  return Weighed(prior_K, log_probs_C, np.stack(without))


def unique_rows(rows_CxM: np.ndarray) -> np.ndarray:
  """Returns the index of the first of each kind of row, in order."""
  seen: dict[tuple[int, ...], int] = {}
  for index, row in enumerate(rows_CxM.tolist()):
    seen.setdefault(tuple(row), index)
  return np.array(list(seen.values()))


def find_subsequences(ids: Sequence[int], wanted: Sequence[int]) -> list[int]:
  """Returns where `wanted` begins in `ids`; occurrences do not overlap."""
  ids, wanted, found, place = list(ids), list(wanted), [], 0
  while wanted and place + len(wanted) <= len(ids):
    if ids[place : place + len(wanted)] == wanted:
      found.append(place)
      place += len(wanted)
    else:
      place += 1
  return found


def _logsumexp(values: np.ndarray) -> np.ndarray:
  highest = np.max(values, axis=-1, keepdims=True)
  highest = np.where(np.isfinite(highest), highest, 0)
  with np.errstate(divide="ignore"):
    return np.log(np.sum(np.exp(values - highest), axis=-1)) + highest[..., 0]
