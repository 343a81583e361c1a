"""The starting point of fine-tuning: configurations and parameters from two checkpoints.

Retriever and reader may come from different checkpoints, as in REALM's ablation (Guu et al. 2020,
table 2).
"""

import dataclasses
from typing import Literal

from realm_jax import choices
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.span_reader import SpanReaderConfig
from realm_jax.runs.training_run import WarmStart
from realm_jax.saved import saved_models
from realm_jax.saved.saved_models import ModelDescription

PassageEncoder = Literal["frozen", "trained"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartingPoint:
  """Models and the sources of their initial parameters.

  Attributes:
    dual_encoder: The dual encoder; its towers are separate if the passage encoder is frozen.
    span_reader: The span reader; all but its BERT is new unless the checkpoint has one.
    passage_length: Passage length that the passage encoder was trained with.
  """

  dual_encoder: DualEncoderConfig
  span_reader: SpanReaderConfig
  passage_length: int
  warm_starts: tuple[WarmStart, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartConfig:
  """How a model for questions is built from the initial checkpoints.

  Attributes:
    passage_encoder: "frozen" trains only the query encoder to retrieve, as published; "trained"
      embeds the passages read afresh in every step, and the index follows.
    max_span_width: Maximum wordpieces of an answer.
    span_hidden_size: Width of the MLP that scores spans.
    temperature: Divides the scores; None uses that of the retriever's checkpoint. Embeddings of
      unit length need one far below 1, or their scores differ too little for the softmax.
    dropout_rate: Dropout of both models, in attention as well; None uses the checkpoints' rates.
  """

  passage_encoder: PassageEncoder = "frozen"
  max_span_width: int = 10
  span_hidden_size: int = 256
  temperature: float | None = None
  dropout_rate: float | None = None

  def bert(self, of_checkpoint: BertConfig) -> BertConfig:
    """Returns the configuration of an encoder with this dropout."""
    if self.dropout_rate is None:
      return of_checkpoint
    return dataclasses.replace(
      of_checkpoint, dropout_rate=self.dropout_rate, attention_dropout_rate=self.dropout_rate
    )

  def __post_init__(self):
    choices.check_fields(self)


def find(*, retriever: str, reader: str, config: StartConfig) -> StartingPoint:
  """Returns the starting point from the newest checkpoints of two directories.

  Raises:
    FileNotFoundError: If a directory has no checkpoint.
  """
  ours = saved_models.load(retriever).description
  dual_encoder = dataclasses.replace(ours.dual_encoder, bert=config.bert(ours.dual_encoder.bert))
  if config.dropout_rate is not None:
    dual_encoder = dataclasses.replace(dual_encoder, projection_dropout_rate=config.dropout_rate)
  if config.temperature is not None:
    dual_encoder = dataclasses.replace(dual_encoder, temperature=config.temperature)
  parts = [("dual_encoder", "dual_encoder")]
  if config.passage_encoder == "frozen" and dual_encoder.towers == "shared":
    # The query encoder will move away from the passage encoder, which built the index.
    dual_encoder = dataclasses.replace(dual_encoder, towers="separate")
    parts = [(f"dual_encoder/{tower}", "dual_encoder/tower") for tower in _TOWERS]
  theirs = saved_models.load(reader).description
  reader_part, span_reader = _reader(theirs, config)
  return StartingPoint(
    dual_encoder=dual_encoder,
    span_reader=span_reader,
    passage_length=ours.passage_length,
    warm_starts=(WarmStart(retriever, parts), WarmStart(reader, [reader_part])),
  )


_TOWERS = ("query_tower", "passage_tower")


def _reader(
  description: ModelDescription, config: StartConfig
) -> tuple[tuple[str, str], SpanReaderConfig]:
  if description.span_reader is not None:
    reader = description.span_reader
    reader = dataclasses.replace(
      reader, bert=config.bert(reader.bert), max_span_width=config.max_span_width
    )
    return ("span_reader", "span_reader"), reader
  there, bert = description.reading_bert
  reader = SpanReaderConfig(
    bert=config.bert(bert),
    max_span_width=config.max_span_width,
    span_hidden_size=config.span_hidden_size,
  )
  return ("span_reader/bert", there), reader
