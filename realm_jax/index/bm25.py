"""BM25, the sparse baseline: ranks passages by the rare words they share with a question."""

import logging
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from realm_jax import datatypes
from realm_jax.index import searcher


class Bm25Retriever:
  """Searches texts by their words; the whole index is in memory.

  Args:
    texts: Texts of the passages, in the order of their ids.
    stemmer: "english" treats words with the same stem as equal.
    k1: Saturation of repeated words.
    b: Strength of the length normalisation.

  Raises:
    ValueError: If there is no text, or the extra `bm25` is not installed.
  """

  def __init__(
    self,
    texts: Iterable[str],
    *,
    stemmer: Literal["english", "none"] = "english",
    k1: float = 1.5,
    b: float = 0.75,
  ):
    try:
      import bm25s
      import Stemmer
    except ModuleNotFoundError as error:
      raise ValueError(
        f"BM25 needs {error.name}: pip install -e '.[bm25]' in the checkout"
      ) from error
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    self._tokenizer = bm25s.tokenization.Tokenizer(
      stopwords="english", stemmer=Stemmer.Stemmer("english") if stemmer == "english" else None
    )
    ids = self._tokenizer.tokenize(list(texts), return_as="ids", show_progress=False)
    self.num_passages = len(ids)
    if not self.num_passages:
      raise ValueError("BM25 needs at least one passage; the corpus has none")
    self._index = bm25s.BM25(k1=k1, b=b)
    self._index.index((ids, self._tokenizer.get_vocab_dict()), show_progress=False)

  def retrieve(self, questions: Sequence[str], *, k: int) -> datatypes.SearchResults:
    """Returns the best `k` passages of each question, best first."""
    words = self._tokenizer.tokenize(
      list(questions), return_as="ids", update_vocab=False, show_progress=False
    )
    found = min(k, self.num_passages)
    ids_BxK, scores_BxK = self._index.retrieve(words, k=found, show_progress=False)
    results = datatypes.SearchResults(ids_BxK.astype(np.int32), scores_BxK.astype(np.float32))
    return searcher.pad(results, k)
