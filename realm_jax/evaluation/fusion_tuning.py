"""Chooses the weight of a dual encoder relative to BM25 on development questions."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from realm_jax.data.judgements import Judgements
from realm_jax.data.questions import Question
from realm_jax.index.fused_searcher import Fusion, Hybrid, fuse
from realm_jax.labels.answer_matching import match_answers
from realm_jax.saved.answering_models import question_search
from realm_jax.saved.opening import Corpus, Opened

WEIGHTS = tuple(tenths / 10 for tenths in range(11))


@dataclasses.dataclass(frozen=True)
class DevelopmentSet:
  """Questions for tuning settings.

  Attributes:
    relevant: Called as `relevant(corpus, ids_BxK)`, returns which passages are relevant.
  """

  questions: Sequence[Question]
  relevant: Callable[[Corpus, np.ndarray], np.ndarray]


def answered_questions(questions: Sequence[Question]) -> DevelopmentSet:
  """Returns questions for which the passages with an answer are relevant."""

  def relevant(corpus: Corpus, ids_BxK: np.ndarray) -> np.ndarray:
    matcher = match_answers(
      questions, store=corpus.store, tokenizer=corpus.tokenizer, rows=ids_BxK[ids_BxK >= 0]
    )
    return matcher.contains(np.arange(len(questions)), ids_BxK)

  return DevelopmentSet(questions, relevant)


def judged_queries(queries: Sequence[Question], judgements: Judgements) -> DevelopmentSet:
  """Returns queries for which the passages of relevant documents are relevant."""

  def relevant(corpus: Corpus, ids_BxK: np.ndarray) -> np.ndarray:
    document = corpus.store.document
    return np.array(
      [
        [i >= 0 and judgements[query.id].get(document(i), 0) > 0 for i in ids_K]
        for query, ids_K in zip(queries, ids_BxK.tolist(), strict=True)
      ]
    )

  return DevelopmentSet(queries, relevant)


def tune(opened: Opened, development: DevelopmentSet) -> tuple[Opened, dict[float, float]]:
  """Chooses the weight with the highest mean reciprocal rank.

  Returns:
    `opened` with that weight, and the mean reciprocal rank of each weight.
  """
  hybrid = opened.hybrid
  assert hybrid is not None, "only a hybrid retriever has a weight"
  texts = [question.text for question in development.questions]
  depth = hybrid.fusion.depth
  dense = question_search(dataclasses.replace(opened, hybrid=None)).retrieve(texts, k=depth)
  sparse = hybrid.bm25.retrieve(texts, k=depth)

  found_BxR = np.concatenate([dense.ids_BxK, sparse.ids_BxK], axis=1)
  right_BxR = development.relevant(opened.corpus, found_BxR)
  right = [set(ids[is_right]) for ids, is_right in zip(found_BxR, right_BxR, strict=True)]

  def quality(fusion: Fusion) -> float:
    ids_BxK = fuse(dense, sparse, depth, fusion=fusion).ids_BxK
    right_BxK = np.array(
      [np.isin(ids, list(known)) for ids, known in zip(ids_BxK, right, strict=True)]
    )
    first_B = right_BxK.argmax(axis=1)
    return float(np.where(right_BxK.any(axis=1), 1 / (1 + first_B), 0).mean())

  fusions = [dataclasses.replace(hybrid.fusion, weight=weight) for weight in WEIGHTS]
  qualities = {fusion.weight: quality(fusion) for fusion in fusions}
  best = max(fusions, key=lambda fusion: qualities[fusion.weight])
  return dataclasses.replace(opened, hybrid=Hybrid(hybrid.bm25, best)), qualities
