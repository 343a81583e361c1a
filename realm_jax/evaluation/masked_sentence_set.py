"""Evaluates retrieval on masked sentences with known answers, and the answers that fill them."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

from realm_jax.answering.open_answerer import mask_filler
from realm_jax.checkpoints.opening import Opened
from realm_jax.data.questions import Question, masked_query_batches
from realm_jax.evaluation import masked_spans, open_qa, prediction_files
from realm_jax.evaluation.result_card import Evaluated
from realm_jax.evaluation.systems import Asking, System
from realm_jax.foundations import progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedSentences:
  """Sentences with one masked span, as an `Evaluator`.

  A checkpoint of `realm pretrain` fills the masks; all other systems only retrieve.
  """

  kind: ClassVar[str] = "masked sentences"
  settings: ClassVar[frozenset[str]] = frozenset(
    ("recall_at", "batch_size", "max_questions", "book")
  )
  settings_read: ClassVar[frozenset[str]] = frozenset(("max_questions",))

  inputs: Mapping[str, str]
  questions: Sequence[Question]
  asking: Asking

  def evaluate(self, system: System) -> Evaluated:
    num_extra, measured = masked_spans.num_extra(self.questions), system.measured
    retrieve_k = max(self.asking.recall_at) + num_extra
    if system.opened is not None and system.opened.saved.fills_masks:
      predictions = self._fill(system.opened, retrieve_k=retrieve_k, num_extra=num_extra)
      measured = {**measured, "reader": f"fills masks, {self.asking.book} book"}
    elif self.asking.book == "closed":
      raise ValueError("book=closed, but nothing is read; give --checkpoints of `realm pretrain`")
    else:
      text = system.corpus.store.text
      predictions = masked_spans.rank_passages(
        system.retrieve, self.questions, text=text, k=retrieve_k
      )
    lines = (json.dumps(self._record(one), ensure_ascii=False) + "\n" for one in predictions)
    return Evaluated(
      measured=measured,
      scores=masked_spans.scores(predictions, recall_at=self.asking.recall_at),
      groups=open_qa.own_groups(self.questions),
      files={"predictions.jsonl": "".join(lines)},
    )

  def read(self, predictions: str) -> Evaluated:
    return prediction_files.read(predictions, self.questions)

  def _fill(
    self, opened: Opened, *, retrieve_k: int, num_extra: int
  ) -> list[masked_spans.Prediction]:
    description = opened.saved.description
    batches = masked_query_batches(
      self.questions,
      tokenizer=opened.corpus.tokenizer,
      query_length=description.query_length,
      max_masks=description.max_masks,
      batch_size=self.asking.batch_size,
    )
    return masked_spans.predict(
      mask_filler(opened),
      progress.track(batches, what="batches of questions"),
      retrieve_k=retrieve_k,
      without_retrieval=self.asking.book == "closed",
      num_extra=num_extra,
    )

  def _record(self, prediction: masked_spans.Prediction) -> dict:
    filled = prediction.filled
    return {
      "id": prediction.question.id,
      "query": prediction.question.masked_text,
      "reference": prediction.question.answer,
      "rank": prediction.rank,
      **(dataclasses.asdict(filled) if filled is not None else {}),
      "figures": prediction.figures(self.asking.recall_at),
    }
