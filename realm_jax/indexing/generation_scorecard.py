"""The scorecard of an index generation, computed by its builder before publication."""

import functools
import os
from collections.abc import Iterator, Sequence

import jax
import numpy as np
import scipy.special
import scipy.stats
from absl import logging

from realm_jax import tokenization
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import (
  Question,
  masked_query_batches,
  question_batches,
  read_questions,
)
from realm_jax.datatypes import Tokens
from realm_jax.index import assembly, generations
from realm_jax.index.exact_searcher import BlockwiseExactSearcher
from realm_jax.labels import right_passages
from realm_jax.labels.answer_matching import match_answers
from realm_jax.models.dual_encoder import DualEncoder
from realm_jax.retrieval.joint_inputs import passage_tokens
from realm_jax.saved.saved_models import ModelDescription, SavedModel

_BATCH = 64
_MAX_PROBES = 500
_MASKS = 10  # wordpieces of an answer, which do not affect the metrics


def scorecard(
  saved: SavedModel,
  embeddings_NxE: np.ndarray,
  *,
  store: PassageStore,
  index: str,
  probe_questions: str,
  mesh: jax.sharding.Mesh,
) -> dict[str, float]:
  """Evaluates the embeddings on probe questions, and compares with the previous generation.

  Returns:
    `recall@k`, `null_mass` (if the model reads the null passage), `entropy`, `hub_share` and
    `hub_skewness` for the k passages that the model reads; and, if there is an earlier generation
    of this corpus, `drift` and `kept_share`.
  """
  description = saved.description
  if description.retrieval is not None:
    k = description.retrieval.num_passages - 1
  else:
    k = description.beam.num_read if description.beam is not None else 5
  questions = read_questions(probe_questions)[:_MAX_PROBES]
  module, params = saved.retriever(mesh)
  encode = functools.partial(_encode, module, params["dual_encoder"])
  queries_BxE = np.concatenate(
    [
      np.asarray(encode(tokens, method="encode_query"))[:count]
      for count, tokens in _batches(questions, description, store)
    ]
  )
  null = passage_tokens(store, np.array([-1]), length=description.passage_length)
  null_1xE = np.asarray(encode(null, method="encode_passage"))
  found = BlockwiseExactSearcher(embeddings_NxE).search(
    queries_BxE, k + right_passages.spare(questions)
  )
  ids_BxK, scores_BxK = (column[:, :k] for column in found)
  null_Bx1 = queries_BxE @ null_1xE.T
  reads_null = description.beam is None
  scores_BxK = np.concatenate(
    [null_Bx1 if reads_null else np.full_like(null_Bx1, -np.inf), scores_BxK], axis=1
  )
  prior = prior_figures(scores_BxK / description.dual_encoder.temperature)
  if not reads_null:
    del prior["null_mass"]
  figures = {
    f"recall@{k}": float(hits(questions, found.ids_BxK, k=k, store=store).mean()),
    **prior,
    **hubness(ids_BxK, num_passages=len(store)),
  }
  before_NxE = _generation_before(index, store)
  if before_NxE is not None and before_NxE.shape == embeddings_NxE.shape:
    old = BlockwiseExactSearcher(before_NxE).search(queries_BxE, k)
    figures["drift"] = drift(before_NxE, embeddings_NxE)
    figures["kept_share"] = kept_share(old.ids_BxK, ids_BxK)
  return figures


@functools.partial(jax.jit, static_argnames=("module", "method"))
def _encode(module: DualEncoder, params: dict, tokens: Tokens, *, method: str) -> jax.Array:
  # Compiled once for all generations, because modules with equal configurations are equal.
  return module.apply({"params": params}, tokens, deterministic=True, method=method)


def _batches(
  questions: Sequence[Question], description: ModelDescription, store: PassageStore
) -> Iterator[tuple[int, Tokens]]:
  """Yields the number of questions in a batch, and their tokens."""
  sizes = {
    "tokenizer": _tokenizer(store),
    "query_length": description.query_length,
    "batch_size": _BATCH,
  }
  if questions[0].span is None:
    texts = [question.text for question in questions]
    for batch, cut in question_batches(texts, **sizes):
      yield len(cut), batch.query
  else:
    for asked, queries in masked_query_batches(questions, max_masks=_MASKS, **sizes):
      yield len(asked), queries.query


def hits(
  questions: Sequence[Question], ids_BxK: np.ndarray, *, k: int, store: PassageStore
) -> np.ndarray:
  """Returns bool `[B]`: whether one of the best `k` passages is right, as evaluations tell it."""
  if questions[0].span is not None:
    ranks = [
      right_passages.rank(question, ids_K, store.text)
      for question, ids_K in zip(questions, ids_BxK, strict=True)
    ]
    return np.array([rank is not None and rank <= k for rank in ranks])
  ids_BxK = ids_BxK[:, :k]
  matcher = match_answers(
    questions, store=store, tokenizer=_tokenizer(store), rows=ids_BxK.reshape(-1)
  )
  return np.any(matcher.contains(np.arange(len(questions)), ids_BxK), axis=1)


def _tokenizer(store: PassageStore) -> tokenization.WordPieceTokenizer:
  return tokenization.load(os.path.join(store.directory, "vocabulary"))


def _generation_before(index: str, store: PassageStore) -> np.ndarray | None:
  newest = generations.newest(index)
  if newest is None:
    return None
  try:
    manifest = generations.read_manifest(index, newest)
    if manifest.corpus_fingerprint != store.fingerprint:
      return None
    return assembly.load_embeddings(index, newest)
  except generations.DamagedGenerationError as error:
    logging.warning("the scorecard has no drift: %s", error)
    return None


def hubness(ids_BxK: np.ndarray, *, num_passages: int) -> dict[str, float]:
  """Measures how unevenly passages are retrieved.

  Returns:
    `hub_share`, the share of queries that get the most frequent passage, and `hub_skewness`, the
    skewness of the number of times each of the N passages is retrieved (Radovanović et al. 2010); 0
    if all are retrieved equally often.
  """
  counts_N = np.bincount(ids_BxK[ids_BxK >= 0], minlength=num_passages).astype(np.float64)
  skewness = float(scipy.stats.skew(counts_N)) if np.ptp(counts_N) else 0.0
  return {"hub_share": float(counts_N.max() / len(ids_BxK)), "hub_skewness": skewness}


def drift(before_NxE: np.ndarray, after_NxE: np.ndarray) -> float:
  """Returns one minus the mean cosine similarity of each passage's old and new embeddings."""
  before, after = before_NxE.astype(np.float32), after_NxE.astype(np.float32)
  norms_N = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
  cosines_N = np.einsum("NE,NE->N", before, after) / np.maximum(norms_N, 1e-12)
  return float(1 - cosines_N.mean())


def prior_figures(scores_BxK: np.ndarray) -> dict[str, float]:
  """Returns the means of `null_mass`, p(null|x), and `entropy` of p(z|x) in nats.

  Args:
    scores_BxK: Scores of the null passage (column 0) and the best passages; -inf marks none.
  """
  prior_BxK = scipy.special.softmax(scores_BxK, axis=1)
  entropy_B = scipy.special.entr(prior_BxK).sum(axis=1)
  return {"null_mass": float(prior_BxK[:, 0].mean()), "entropy": float(entropy_B.mean())}


def kept_share(before_BxK: np.ndarray, after_BxK: np.ndarray) -> float:
  """Returns the share of the previously retrieved passages that are retrieved again."""
  again_BxK = (before_BxK[:, :, None] == after_BxK[:, None, :]).any(axis=-1) & (before_BxK >= 0)
  return float(again_BxK.sum() / max((before_BxK >= 0).sum(), 1))
