"""Documents near each other support each other's scores.

A query that a document answers is answered, as a rule, by documents like it. So, without training,

  score'(x, d) = score(x, d) + b mean of score(x, n) over the nearest five n of d

where near is the sum of two cosines: of the mean embeddings of the documents' passages, and of
their BM25 vectors, which random signs project to 1,024 numbers.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from realm_jax.devices.datatypes import MISSING_PASSAGE_ID
from realm_jax.index import assembly
from realm_jax.index.bm25 import Bm25Config
from realm_jax.index.postings import Postings
from realm_jax.index.searcher import SearcherConfig

_COUNT = 5
_WORD_DIMENSIONS = 1024
_TERMS_AT_ONCE = 2**15
_DOCUMENTS_AT_ONCE = 1024
# Of fewer documents, a tree takes longer to build than all comparisons.
_SEARCH = SearcherConfig(min_passages_for_tree=20_000, num_leaves_to_search=150)


@dataclasses.dataclass(frozen=True, eq=False)
class Neighbours:
  """The nearest documents of each document.

  Attributes:
    document_N: The document of each passage, numbered from 0.
    nearest_DxJ: The nearest documents, J being 5 or as many others as there are.
  """

  document_N: np.ndarray
  nearest_DxJ: np.ndarray

  def mean_scores(self, ids_C: np.ndarray, scores_C: np.ndarray) -> np.ndarray:
    """Returns the mean score of the neighbours of each passage's document, `[C]`.

    A document has the score of its best passage; one without any, the mean, which is 0 where scores
    are standardized.

    Args:
      ids_C: Ids of passages; those beyond the corpus have no neighbours, and 0.
      scores_C: Their scores.
    """
    known_C = ids_C < len(self.document_N)
    document_C = self.document_N[ids_C[known_C]]
    best_D = np.full(len(self.nearest_DxJ), -np.inf)
    np.maximum.at(best_D, document_C, scores_C[known_C])
    best_D[np.isneginf(best_D)] = 0
    mean_C = np.zeros(len(ids_C))
    if self.nearest_DxJ.size:
      mean_C[known_C] = best_D[self.nearest_DxJ].mean(axis=1)[document_C]
    return mean_C


def find_neighbours(
  documents: Sequence[str], *, embeddings_NxE: np.ndarray, postings: Postings
) -> Neighbours:
  """Finds the nearest documents.

  Args:
    documents: The name of each passage's document; a passage without one is a document.
  """
  names = [name or row for row, name in enumerate(documents)]
  number = {name: i for i, name in enumerate(dict.fromkeys(names))}
  document_N = np.array([number[name] for name in names])
  of_DxN = sparse.csr_array(
    (np.ones(len(names), np.float32), (document_N, np.arange(len(names)))),
    shape=(len(number), len(names)),
  )
  dense_DxE = of_DxN @ np.asarray(embeddings_NxE, np.float32)
  words_DxE = _word_vectors(postings, document_N, num_documents=len(number))
  vectors_DxE = np.concatenate([_unit(dense_DxE), _unit(words_DxE)], axis=1)
  return Neighbours(document_N, _nearest(vectors_DxE))


def _word_vectors(postings: Postings, document_N: np.ndarray, *, num_documents: int) -> np.ndarray:
  """Returns the projected sums of the BM25 vectors of each document's passages."""
  config, num_terms = Bm25Config(), postings.num_terms
  lengths_N = np.diff(postings.starts) - 1
  relative_N = lengths_N / max(1.0, lengths_N.mean())
  saturation_N = (config.k1 * (1 - config.b + config.b * relative_N)).astype(np.float32)
  frequencies_T = np.diff(postings.offsets)
  idf_T = np.log(1 + (len(postings) - frequencies_T + 0.5) / (frequencies_T + 0.5))
  draw = np.random.default_rng(0)
  vectors_DxE = np.zeros((num_documents, _WORD_DIMENSIONS), np.float32)
  for first in range(0, num_terms, _TERMS_AT_ONCE):
    offsets = postings.offsets[first : first + _TERMS_AT_ONCE + 1]
    rows, counts = (a[offsets[0] : offsets[-1]] for a in (postings.rows, postings.counts))
    idf = idf_T[first : first + _TERMS_AT_ONCE]
    weights = counts / (counts + saturation_N[rows]) * np.repeat(idf, np.diff(offsets))
    weights_DxT = sparse.csc_array(
      (weights.astype(np.float32), document_N[rows], offsets - offsets[0]),
      shape=(num_documents, len(idf)),
    )
    signs_TxE = draw.integers(2, size=(len(idf), _WORD_DIMENSIONS), dtype=np.int8) * 2 - 1
    vectors_DxE += weights_DxT @ signs_TxE.astype(np.float32)
  return vectors_DxE


def _unit(vectors_DxE: np.ndarray) -> np.ndarray:
  return vectors_DxE / np.maximum(np.linalg.norm(vectors_DxE, axis=1, keepdims=True), 1e-9)


def _nearest(vectors_DxE: np.ndarray) -> np.ndarray:
  """Returns the nearest other documents of each, `[D, J]`."""
  size = len(vectors_DxE)
  count = min(_COUNT, size - 1)
  config = _SEARCH.for_corpus(size)
  searcher = assembly.assemble(assembly.build_shards(vectors_DxE, config=config), config=config)
  nearest_DxJ = np.empty((size, count), np.int64)
  for first in range(0, size, _DOCUMENTS_AT_ONCE):
    rows = np.arange(first, min(first + _DOCUMENTS_AT_ONCE, size))
    ids_BxK = searcher.search(vectors_DxE[rows], count + 1).ids_BxK
    others_BxK = np.where(ids_BxK == rows[:, None], MISSING_PASSAGE_ID, ids_BxK)
    order_BxK = np.argsort(others_BxK < 0, axis=1, kind="stable")
    nearest_BxJ = np.take_along_axis(others_BxK, order_BxK, axis=1)[:, :count]
    # What an approximate search does not find is replaced by the nearest one.
    nearest_DxJ[rows] = np.where(nearest_BxJ < 0, nearest_BxJ[:, :1], nearest_BxJ)
  return nearest_DxJ
