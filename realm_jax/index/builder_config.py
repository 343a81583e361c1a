"""The settings of an index builder."""

import dataclasses
from typing import Literal

from realm_jax.foundations import choices
from realm_jax.index.vectors.searcher import SearcherConfig

POLL_SECONDS = 2.0  # between looks for a newer checkpoint
SAMPLE_QUERIES = 512  # for measuring recall


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuilderConfig(choices.Checked):
  """How the knowledge corpus is embedded and its index published.

  Attributes:
    searcher: Settings of the index.
    dtype: Dtype of the embeddings on disk and in the index.
    tokens_per_batch: Padded tokens per batch, over all devices of all processes.
    keep: Number of generations to keep.
    other_runs: Whether to leave an index with generations of another run alone ("refuse"), or to
      publish to it, so that they are deleted in turn ("accept").
  """

  searcher: SearcherConfig = SearcherConfig()
  dtype: Literal["float32", "bfloat16"] = "float32"
  tokens_per_batch: choices.Count = 16_384
  keep: choices.Count = 3
  other_runs: Literal["refuse", "accept"] = "refuse"
