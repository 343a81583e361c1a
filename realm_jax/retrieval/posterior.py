"""Candidates from the posterior: in training the masked words are known, so they can be searched.

The marginal likelihood teaches a retriever only what lies among the K passages read. Some of them
are therefore found with the unmasked sentence (Hindsight, Paranjape et al. 2022). The sum remains
REALM's own, over other candidates, and the scores those of the current parameters for the masked
query. Nothing is proposed when answering.
"""

import abc
import dataclasses
from collections.abc import Callable

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices.datatypes import SearchResults, Tokens
from realm_jax.foundations import choices
from realm_jax.index.words.bm25 import open_bm25
from realm_jax.text import wordpieces

# Finds the best k passages for unmasked sentences `[B, L]` of this process.
SentenceSearch = Callable[[Tokens, int], SearchResults]


class Posterior(choices.Checked, abc.ABC):
  """What finds passages with unmasked sentences; subclasses are frozen dataclasses.

  Attributes:
    num_passages: The number of the K passages that it fills, if those found with the masked query
      are others.
  """

  num_passages: choices.Count

  @abc.abstractmethod
  def open(self, store: PassageStore) -> SentenceSearch:
    """Returns what searches a corpus."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bm25Posterior(Posterior):
  """Finds what shares rare words with the sentence; its index is kept beside the corpus."""

  num_passages: choices.Count

  def open(self, store: PassageStore) -> SentenceSearch:
    retriever = open_bm25(store)
    vocabulary = store.vocabulary
    special = [vocabulary.vocabulary.index(token) for token in wordpieces.SPECIAL_TOKENS]

    def search(sentences: Tokens, k: int) -> SearchResults:
      words_BxL = ~np.isin(sentences.ids, special)
      texts = [
        vocabulary.decode(ids[words]) for ids, words in zip(sentences.ids, words_BxL, strict=True)
      ]
      return retriever.retrieve(texts, k=k)

    return search
