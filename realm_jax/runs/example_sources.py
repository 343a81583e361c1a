"""Where a training's examples come from: a SeqIO task, or arrays prepared from one beforehand."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, ClassVar

from realm_jax import wordpieces
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches, prepared_examples
from realm_jax.data.questions import Question, answers_digest, texts_digest


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Examples:
  """Examples of one kind.

  Attributes:
    source: what the task is made of, or a directory of prepared examples.
    vocabulary: directory with `vocab.txt`.
  """

  kind: ClassVar[str]
  source: str
  vocabulary: str

  def settings(self) -> dict[str, prepared_examples.Setting]:
    """Returns what decides the examples, beside their source."""
    own = {k: v for k, v in dataclasses.asdict(self).items() if k not in ("source", "vocabulary")}
    return {"vocabulary": wordpieces.load(self.vocabulary).digest, "task": self.kind} | own

  def open(
    self, *, batch_size: int, seed: int, training: bool, shard: batches.Shard | None = None
  ) -> batches.Batches:
    """Opens the examples; of prepared ones the seed was chosen when they were prepared.

    Args:
      batch_size: examples a batch.
      seed: of order and masks.
      training: whether they are shuffled and repeated for ever; otherwise one pass in order.
      shard: the part of the data this process reads.

    Raises:
      FileNotFoundError: if they are missing.
      ValueError: if they were prepared for something else, or there are none.
    """
    if prepared_examples.is_prepared(self.source):
      return prepared_examples.open_batches(
        self.source,
        settings=self.settings(),
        order="shuffled" if training else "corpus",
        batch_size=batch_size,
        shard=shard,
      )
    # A task needs TensorFlow, which takes seconds to import and is missing on some machines.
    from realm_jax.data import input_pipeline

    return input_pipeline.task_batches(
      **self.task(), batch_size=batch_size, seed=seed, training=training, shard=shard
    )

  def task(self) -> dict[str, Any]:
    """Returns the task, its converter and its lengths, as `input_pipeline.task_batches` wants."""
    raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedQueryExamples(_Examples):
  """Masked queries of a tagged corpus; see `realm pretrain`."""

  kind = "masked_queries"
  mask: batches.Masking = "salient_span"
  query_length: int = 96
  max_masks: int = 10

  def task(self) -> dict[str, Any]:
    from realm_jax.data.feature_converters import MaskedQueryConverter
    from tasks import salient_span_masking

    return {
      "task": salient_span_masking.register(
        corpus=self.source, vocabulary=self.vocabulary, mask=self.mask
      ),
      "converter": MaskedQueryConverter(),
      "lengths": {
        "query": self.query_length,
        "mlm_positions": self.max_masks,
        "mlm_targets": self.max_masks,
      },
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class InverseClozeExamples(_Examples):
  """Pseudo-queries with their passages; see `realm pretrain_ict`."""

  kind = "inverse_cloze"
  query_length: int = 64
  passage_length: int = 288
  removal_rate: float = 0.9
  hide_salient_spans: bool = False
  neighbours: int = 1

  def task(self) -> dict[str, Any]:
    from realm_jax.data.feature_converters import InverseClozeConverter
    from tasks import inverse_cloze

    pieces = wordpieces.load(self.vocabulary)
    return {
      "task": inverse_cloze.register(
        corpus=self.source,
        vocabulary=self.vocabulary,
        removal_rate=self.removal_rate,
        hide_salient_spans=self.hide_salient_spans,
        in_order=self.neighbours > 1,
      ),
      "converter": InverseClozeConverter(cls_id=pieces.cls_id, sep_id=pieces.sep_id),
      "lengths": {
        "query": self.query_length,
        "title": self.passage_length,
        "body": self.passage_length,
      },
      "run_length": self.neighbours,
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionExamples(_Examples):
  """Questions of a file; see `realm finetune`.

  Attributes:
    questions_digest: `questions.texts_digest` of the file, whose positions the examples name.
    answers_digest: `questions.answers_digest` of the file. This and the rest decides the labels.
    corpus_fingerprint: of the passages in which the answers are found.
    answer_rule: see `match_answers`.
  """

  kind = "questions"
  query_length: int = 64
  questions_digest: str
  answers_digest: str
  corpus_fingerprint: str
  answer_rule: str

  @classmethod
  def of(
    cls,
    asked: Sequence[Question],
    *,
    source: str,
    store: PassageStore,
    query_length: int,
    answer_rule: str,
  ) -> "QuestionExamples":
    """Returns the examples of questions that are asked of a corpus."""
    return cls(
      source=source,
      vocabulary=os.path.join(store.directory, "vocabulary"),
      query_length=query_length,
      questions_digest=texts_digest(asked),
      answers_digest=answers_digest(asked),
      corpus_fingerprint=store.fingerprint,
      answer_rule=answer_rule,
    )

  def task(self) -> dict[str, Any]:
    from realm_jax.data.feature_converters import OpenQuestionConverter
    from tasks import open_qa

    return {
      "task": open_qa.register(questions=self.source, vocabulary=self.vocabulary),
      "converter": OpenQuestionConverter(),
      "lengths": {"query": self.query_length, "question_index": 1},
    }
