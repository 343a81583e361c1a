"""Explains an answer by the passages read, and by what it would be without each of them.

Everything follows from p(z|x) and p(y|z,x) of the passages read and of one more, the *reserve*,
which the index ranks next. It takes the place of a passage left out, as if that had been removed
from the corpus.
"""

import dataclasses
from typing import Literal

import numpy as np
from scipy.special import log_softmax

from realm_jax.text.terminal import column, isolated


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerOption:
  """One of the most likely answers.

  Attributes:
    text: The answer as written in a passage, or its wordpieces joined.
    probability: What answers are ranked by. For a `[MASK]`, p(y|x), summed over the passages; for a
      question, p(y,z|x) of the best span with these words.
    probability_without_retrieval: p(y|null,x), of the same model with the null passage alone; None
      for a span reader.
    probability_given_best: The highest p(y|z,x) over passages other than the null passage.
  """

  text: str
  probability: float
  probability_without_retrieval: float | None
  probability_given_best: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
  """A passage that was read, and its contribution to the best answer y.

  Attributes:
    passage_id: Row of the store; -1 for the null passage.
    title: Empty for the null passage.
    text: Empty for the null passage.
    edited: Whether the passage was edited.
    retrieval_probability: p(z|x).
    answer_probability: p(y|z,x).
    contribution: p(y,z|x). For a `[MASK]` it is the product of the two, and p(y|x) is the sum of
      the contributions. For a question it is the best span's probability in one softmax over the
      spans of all passages, and the highest contribution is the answer's probability.
    utility: log p(y|z,x) - log p(y|null,x), in nats (Guu et al. 2020, section 4.4); None without a
      null passage.
    says: Most likely answer with this passage alone.
    spans: Character offsets of the answer in the text.
    probability_without: The answer's probability if the passage were not in the corpus.
    answer_without: Most likely answer in that case; empty if no passage would be left.
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
  """The passages that one index generation retrieves for a query.

  Attributes:
    training_step: Step of the passage embeddings.
    own_query_encoder: Whether the query was embedded with the parameters of that step, rather than
      with the current ones because that checkpoint is gone.
    passage_ids: Passages, best first.
  """

  generation: int
  training_step: int
  own_query_encoder: bool
  passage_ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
  """The answers to one query, and the passages behind the best of them.

  Attributes:
    answers: Most likely first, except that a requested target comes before all others. Answers to a
      `[MASK]` have as many wordpieces as the most likely one.
    null_share: p(null|x); None if the model reads no null passage.
    passages: Highest p(z|x) first, including the null passage.
    rankings: Oldest generation first; empty unless requested. They ignore edits.
  """

  query: str
  answers: tuple[AnswerOption, ...]
  likeliest: str
  null_share: float | None
  passages: tuple[Evidence, ...]
  rankings: tuple[GenerationRanking, ...] = ()

  def __str__(self) -> str:
    """Returns it as lines of text."""
    best, *others = self.answers
    lines = [self.query, f"  {isolated(best.text)}   {_probability(best)}"]
    if others:
      options = (f"{isolated(option.text)} {option.probability:.3f}" for option in others)
      lines.append(f"  or: {', '.join(options)}")
    lines.append("  p(z|x)  p(y|z,x)  utility  without it            passage")
    return "\n".join([*lines, *map(_line, self.passages)])


def _probability(best: AnswerOption) -> str:
  without = best.probability_without_retrieval
  if without is None:
    return f"p(y,z|x) = {best.probability:.3f}"
  return f"p(y|x) = {best.probability:.3f}, without retrieval {without:.2g}"


def _line(passage: Evidence) -> str:
  without = f"{passage.probability_without:.3f} {passage.answer_without or '(no answer)'}"
  utility = "" if passage.utility is None else f"{passage.utility:+.1f}"
  text = (
    isolated(f"{passage.title}: {passage.text}") if passage.passage_id >= 0 else "(null passage)"
  )
  return (
    f"  {passage.retrieval_probability:6.3f}  {passage.answer_probability:8.3f}  "
    f"{utility:>7}  {column(without, 20)}  {text}"
  )


@dataclasses.dataclass(frozen=True)
class LeaveOneOut:
  """C candidate answers given K passage slots; the last slot is the reserve.

  Attributes:
    prior_K: p(z|x); 0 for the reserve and for slots without a passage.
    log_probs_C: Log probability of each answer.
    log_probs_without_KxC: Log probability of each answer without the passage of a slot.
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
  """Computes the probability of each answer with all passages, and without each of them.

  Args:
    scores_K: log p(z|x) up to a constant.
    log_probs_CxK: log p(y|z,x).
    valid_K: False for empty slots.
    corpus_K: False for the null passage, which the reserve does not replace.
    over_passages: Whether an answer's probability is the sum or the maximum of p(y,z|x) over the
      passages.
  """
  size = len(scores_K)
  read_K = valid_K & (np.arange(size) < size - 1)

  combine = np.logaddexp if over_passages == "sum" else np.maximum

  def answer_with(used_K):
    log_prior_K = log_softmax(np.where(used_K, scores_K, -np.inf))
    joint_CxK = log_prior_K + log_probs_CxK
    return np.exp(log_prior_K), combine.reduce(joint_CxK, axis=-1)

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
