"""How questions of an evaluation are asked."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from realm_jax.answering.question_answerer import AnswerText
from realm_jax.evaluation.open_qa import RECALL_AT
from realm_jax.foundations import choices


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asking:
  """How questions are asked.

  Attributes:
    answer_text: "raw" slices the passage's text; "spaced" separates words from punctuation, as the
      released ORQA does.
    book: For masked sentences, "closed" reads only the null passage.
    recall_at: Values of k for recall@k.
    batch_size: Questions asked at once.
  """

  answer_text: AnswerText = "raw"
  book: Literal["open", "closed"] = "open"
  recall_at: Sequence[int] = RECALL_AT
  batch_size: int = 32

  def __post_init__(self):
    choices.check_fields(self)
    if not self.recall_at or min(self.recall_at) < 1 or self.batch_size < 1:
      raise ValueError(
        f"recall_at={','.join(map(str, self.recall_at))} and batch_size={self.batch_size}; use "
        "numbers of at least 1"
      )
