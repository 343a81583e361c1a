"""The starting point of fine-tuning: configurations and parameters from two checkpoints.

Retriever and reader may come from different checkpoints, as in REALM's ablation (Guu et al. 2020,
table 2).
"""

import dataclasses
from typing import Any, Literal

from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.saved_models import ModelDescription
from realm_jax.foundations import choices
from realm_jax.models.encoder import EncoderConfig
from realm_jax.models.span_reader import SpanReaderConfig
from realm_jax.training.training_config import changed
from realm_jax.training.training_run import WarmStart

PassageEncoder = Literal["frozen", "trained"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartingPoint:
  """Models and the sources of their initial parameters.

  Attributes:
    dual_encoder: The dual encoder; queries have parameters of their own if the passage encoder is
      frozen.
    span_reader: The span reader; all but its BERT is new unless the checkpoint has one.
    passage_length: Passage length that the passage encoder was trained with.
  """

  dual_encoder: EncoderConfig
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

  def with_dropout(self, of_checkpoint: Any) -> Any:
    """Returns a model's configuration with this dropout."""
    if (rate := self.dropout_rate) is None:
      return of_checkpoint
    return changed(of_checkpoint, lambda name, v: rate if name.endswith("dropout_rate") else v)

  def __post_init__(self):
    choices.check_fields(self)


def find(*, retriever: str, reader: str, config: StartConfig) -> StartingPoint:
  """Returns the starting point from the newest checkpoints of two directories.

  Raises:
    FileNotFoundError: If a directory has no checkpoint.
  """
  ours = saved_models.load(retriever).description
  dual_encoder = config.with_dropout(ours.dual_encoder)
  if config.temperature is not None:
    dual_encoder = dataclasses.replace(dual_encoder, temperature=config.temperature)
  parts = [("dual_encoder", "dual_encoder")]
  if config.passage_encoder == "frozen":
    # The query encoder will move away from the passage encoder, which built the index.
    dual_encoder, copies = dual_encoder.separated()
    parts = [(f"dual_encoder/{here}", f"dual_encoder/{there}") for here, there in copies.items()]
  theirs = saved_models.load(reader).description
  reader_part, span_reader = _reader(theirs, config, source=reader)
  return StartingPoint(
    dual_encoder=dual_encoder,
    span_reader=span_reader,
    passage_length=ours.passage_length,
    warm_starts=(WarmStart(retriever, parts), WarmStart(reader, [reader_part])),
  )


def _reader(
  description: ModelDescription, config: StartConfig, *, source: str
) -> tuple[tuple[str, str], SpanReaderConfig]:
  if description.span_reader is not None:
    reader = config.with_dropout(description.span_reader)
    reader = dataclasses.replace(reader, max_span_width=config.max_span_width)
    return ("span_reader", "span_reader"), reader
  if description.reading_bert is None:
    raise ValueError(f"{source} has no BERT for the span reader to start from; give another reader")
  there, bert = description.reading_bert
  reader = SpanReaderConfig(
    bert=config.with_dropout(bert),
    max_span_width=config.max_span_width,
    span_hidden_size=config.span_hidden_size,
  )
  return ("span_reader/bert", there), reader
