"""Finds passages for questions with a dual encoder and an index generation."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from realm_jax.data.questions import question_batches
from realm_jax.devices.datatypes import Array, SearchResults, Tokens
from realm_jax.index.fused_searcher import Hybrid
from realm_jax.index.searcher import Searcher
from realm_jax.retrieval.passage_finder import Rescoring
from realm_jax.text.wordpieces import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionSearch:
  """Finds any number of passages; no reader is needed.

  Attributes:
    encode_query: Jitted, `(params, Tokens [B, L]) -> [B, E]`.
    query_length: L.
    batch_size: Questions encoded at once.
    hybrid: BM25, to search as well; None searches the generation alone.
    rescoring: Ranks candidates of the generation again by the encoder's exact scores;
      None keeps what was found, as a hybrid search always does.
  """

  params: dict
  encode_query: Callable[[dict, Tokens], Array]
  searcher: Searcher
  tokenizer: Tokenizer
  query_length: int
  batch_size: int = 32
  hybrid: Hybrid | None = None
  rescoring: Rescoring | None = None

  def retrieve(self, questions: Sequence[str], *, k: int) -> SearchResults:
    """Returns the best `k` passages of each question, over the whole corpus."""
    parts, searcher = [], self.searcher
    rescoring = None if self.hybrid is not None else self.rescoring
    kept = None if rescoring is None else rescoring.kept(self.params)
    for batch, truncated in question_batches(
      questions,
      tokenizer=self.tokenizer,
      query_length=self.query_length,
      batch_size=self.batch_size,
    ):
      queries_BxE = np.asarray(self.encode_query(self.params, batch.query), np.float32)
      tokens, queries_BxE = batch.query[: len(truncated)], queries_BxE[: len(truncated)]
      if self.hybrid is not None:
        texts = [questions[int(i)] for i in batch.index_B[: len(truncated)]]
        searcher = self.hybrid.searcher(self.searcher, texts)
      if rescoring is None:
        parts.append(searcher.search(queries_BxE, k))
      else:
        found = searcher.search(queries_BxE, rescoring.num_found(k))
        parts.append(rescoring(kept, tokens, found, k=k))
    return SearchResults(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
