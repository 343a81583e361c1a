"""The settings of an index builder."""

import dataclasses
from typing import Literal

from realm_jax import choices
from realm_jax.index.searcher import SearcherConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuilderConfig:
  """How the knowledge corpus is embedded and its index published.

  Attributes:
    searcher: Settings of the index.
    dtype: Dtype of the embeddings on disk and in the index.
    tokens_per_batch: Padded tokens per batch, over all devices of all processes.
    keep: Number of generations to keep, partial ones not counted.
    refresh_sample: Number of passages of a partial generation. While the corpus is being embedded,
      each newer checkpoint embeds so many random passages of the newest generation again, and
      trainers search that one with queries mapped accordingly. 0 publishes whole ones only.
  """

  searcher: SearcherConfig = SearcherConfig()
  dtype: Literal["float32", "bfloat16"] = "float32"
  tokens_per_batch: int = 16_384
  keep: int = 3
  refresh_sample: int = 0

  def __post_init__(self):
    choices.check_fields(self)
    if self.refresh_sample < 0:
      raise ValueError(f"refresh_sample={self.refresh_sample}; it must be at least 0")
