"""Whether a search has found an answer, as a probability that is learned from questions.

It is a logistic regression of what a search shows anyway: how far the best scores of each ranking
stand out, how many words of the question the passages have, whether the rankings agree, and whether
similar questions were answered. It is to a search what p(null passage) is to a reader.
"""

import dataclasses
import json

import numpy as np
from absl import logging

from realm_jax.foundations import json_fields, plain_files, text_files
from realm_jax.knowledge_base.store import commits
from realm_jax.knowledge_base.store.commits import Ranking, Settings

DEPTH = 20  # scores that features are made of
_CHANGED = 0.2  # share of the passages


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answerability:
  """A logistic regression, and the searches that it is of.

  Attributes:
    weights: Of the features in standard deviations from their means; that of 1 is the last.
    by_best: Of the best score, of the number of hits, and of 1, where nothing else is trusted.
    lows: The features that most questions have at least; beyond these or `highs`, or if no past
      question is near, the question is unlike those that were learned from.
    num_passages: Passages that were searched.
  """

  encoder: str
  adapter: str
  ranking: str
  means: tuple[float, ...]
  deviations: tuple[float, ...]
  weights: tuple[float, ...]
  by_best: tuple[float, float, float]
  lows: tuple[float, ...]
  highs: tuple[float, ...]
  num_passages: int

  def __post_init__(self):
    lists = self.means, self.deviations, self.weights, self.by_best, self.lows, self.highs
    numbers = np.concatenate([np.array(one, float) for one in lists])
    number = 6 * (2 if self.ranking == "words" else 3) + 7
    if [number, number, number + 1, 3, number, number] != [*map(len, lists)]:
      raise ValueError(f"there are other than {number} features")
    if not (np.isfinite(numbers).all() and min(self.deviations) > 0):
      raise ValueError("a number is not finite, or a deviation not positive")

  def is_of(self, settings: Settings, by: Ranking | None) -> bool:
    """Returns whether it was learned from such searches."""
    own = (self.encoder, self.adapter, self.ranking)
    return own == (settings.encoder, settings.adapter, by or ranking_of(settings))

  def is_stale(self, num_passages: int) -> bool:
    """Returns whether so many passages came or went that it is to be learned again."""
    return abs(num_passages - self.num_passages) > _CHANGED * self.num_passages

  def knows(self, features: np.ndarray) -> bool:
    """Returns whether the question is like those that were learned from."""
    return bool(((self.lows[:-1] <= features) & (features <= self.highs[:-1])).all())

  def probability(self, features: np.ndarray, k: int) -> float:
    """Returns that of an answer among the best k."""
    row = (at_depth(features, k) - self.means) / self.deviations
    if not self.knows(features):
      return float(sigmoid(np.append(row[[0, -1]], 1) @ self.by_best)) if k else 0.0
    return float(sigmoid(np.append(row, 1) @ self.weights)) if k else 0.0

  def write(self, directory: str) -> str:
    """Writes it into a knowledge base; returns its name there, a digest."""
    content = json.dumps(dataclasses.asdict(self))
    return commits.write_text(directory, "answerability.json", content)

  @classmethod
  def open(cls, directory: str, name: str) -> "Answerability | None":
    """Opens that of a knowledge base, which can be searched without if it is damaged."""
    path = f"{commits.model_path(directory, name)}/answerability.json"
    try:
      with plain_files.open_plain(path) as file:
        return json_fields.restored(cls, text_files.parse_json(file.read()))
    except (OSError, *json_fields.WRONG) as error:
      reason = json_fields.reason(error)
      logging.warning("searches do not know what is answerable, train again: %s: %s", path, reason)
      return None


def ranking_of(settings: Settings) -> Ranking:
  return settings.ranking if settings.encoder else "words"


def at_depth(features: np.ndarray, k: int) -> np.ndarray:
  """Returns the features of a search for k passages."""
  return np.append(features, np.log(np.clip(k, 1, DEPTH)))


def sigmoid(logits: np.ndarray) -> np.ndarray:
  """Returns probabilities."""
  return 1 / (1 + np.exp(-np.clip(logits, -30, 30)))
