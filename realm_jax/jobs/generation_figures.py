"""The scorecard of an index generation, made by its builder before it is published."""

import os

import jax
import numpy as np

from realm_jax import tokenization
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data.questions import question_batches, read_questions
from realm_jax.index import generations
from realm_jax.index.exact_searcher import ExactSearcher
from realm_jax.jobs.saved_models import SavedModel
from realm_jax.metrics import generation_scorecard
from realm_jax.retrieval.joint_inputs import passage_tokens

_BATCH = 64
_MASKS = 10  # of an answer; the figures do not depend on them


def scorecard(
  saved: SavedModel,
  embeddings_NxE: np.ndarray,
  *,
  store: PassageStore,
  index: str,
  probe_questions: str,
  max_questions: int,
  mesh: jax.sharding.Mesh,
) -> dict[str, float]:
  """Asks probe questions of the embeddings, and compares with the generation before.

  Args:
    saved: the checkpoint that made the embeddings.
    embeddings_NxE: of the passages.
    store: the knowledge corpus.
    index: directory of the generations published so far.
    probe_questions: JSON Lines with masked questions.
    max_questions: the first so many are asked.
    mesh: where the queries are embedded.

  Returns:
    `recall@k`, `null_mass`, `entropy`, `hub_share`, `hub_skewness` with the k passages that the
    model reads, and beside an earlier generation of this corpus `drift` and `kept_share`.
  """
  description = saved.description
  k = (description.retrieval.num_passages - 1) if description.retrieval else 5
  questions = read_questions(probe_questions)[:max_questions]
  module, params = saved.retriever(mesh)
  params = params["dual_encoder"]
  encode_query = jax.jit(
    lambda tokens: module.apply(
      {"params": params}, tokens, deterministic=True, method="encode_query"
    )
  )
  batches = question_batches(
    questions,
    tokenizer=tokenization.load(os.path.join(store.directory, "vocabulary")),
    query_length=description.query_length,
    max_masks=_MASKS,
    batch_size=_BATCH,
  )
  queries_BxE = np.concatenate(
    [np.asarray(encode_query(queries.query))[: len(asked)] for asked, queries in batches]
  )
  null = passage_tokens(store, np.array([-1]), length=description.passage_length)
  null_1xE = np.asarray(
    module.apply({"params": params}, null, deterministic=True, method="encode_passage")
  )
  found = ExactSearcher(embeddings_NxE.astype(np.float32)).search(queries_BxE, k)
  scores_BxK = np.concatenate([queries_BxE @ null_1xE.T, found.scores_BxK], axis=1)
  hits = [
    any((question.passage or question.answer) in store.text(i) for i in ids if i >= 0)
    for question, ids in zip(questions, found.ids_BxK.tolist(), strict=True)
  ]
  figures = {
    f"recall@{k}": float(np.mean(hits)),
    **generation_scorecard.prior_figures(scores_BxK / description.dual_encoder.temperature),
    **generation_scorecard.hubness(found.ids_BxK, num_passages=len(store)),
  }
  before_NxE = _generation_before(index, store)
  if before_NxE is not None and before_NxE.shape == embeddings_NxE.shape:
    old = ExactSearcher(before_NxE.astype(np.float32)).search(queries_BxE, k)
    figures["drift"] = generation_scorecard.drift(before_NxE, embeddings_NxE)
    figures["kept_share"] = generation_scorecard.kept_share(old.ids_BxK, found.ids_BxK)
  return figures


def _generation_before(index: str, store: PassageStore) -> np.ndarray | None:
  newest = generations.newest(index)
  if newest is None:
    return None
  manifest = generations.read_manifest(index, newest)
  if manifest.corpus_fingerprint != store.fingerprint:
    return None
  shards = (generations.restore(index, newest, i) for i in range(len(manifest.shards)))
  return np.concatenate([shard["embeddings"] for shard in shards])
