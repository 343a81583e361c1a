"""What the interface finds out about any encoder: its width, and the parameters of each side."""

import dataclasses

import pytest

from examples.own_encoder import Bag, BagConfig


class Shared(Bag):
  """Embeds passages with the vectors of queries."""

  def encode_passage(self, tokens, *, deterministic):
    return self.encode_query(tokens, deterministic=deterministic)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedConfig(BagConfig):
  def make(self):
    return Shared(self)


def test_each_side_has_the_parameters_that_it_reads():
  apart, shared = (kind(vocab_size=5, width=3) for kind in (BagConfig, SharedConfig))
  assert apart.embedding_size == shared.embedding_size == 3
  params = {"query_words": {"embedding": 1}, "passage_words": {"embedding": 2}}
  assert apart.params_of("passage", params) == {"passage_words": {"embedding": 2}}
  assert shared.params_of("passage", params) == {"query_words": {"embedding": 1}}
  assert apart.separated()[0] == apart
  with pytest.raises(ValueError, match=r"SharedConfig .*\['query_words'\]"):
    shared.separated()
