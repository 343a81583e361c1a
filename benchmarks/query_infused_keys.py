"""The peer of memory: past questions folded into the embeddings of passages, also without training.

Query-infused key memory (arXiv 2602.05152) moves the key of a passage towards what found it, where
that was right. Here the key of passage z with embedding z is, of the same length as z,

  z + min(1, BOUND / |d|) d,  d = STEP · sum of the past questions that z was useful for,

with questions and z at length 1, and a search compares questions with keys; words are as they were.
What the paper adds to a query by a language model is the question alone here, and feedback is what
gates it. Sets and figures are those of `learning_from_use.py`, whose knowledge bases it opens.

  python benchmarks/query_infused_keys.py --data=DATA --encoder=MINILM --directory=scratch
  python benchmarks/query_infused_keys.py ... --sets catalogue --step 0.2 --bound 0.4
"""

import argparse
import dataclasses
import functools
import os
from collections.abc import Sequence

import learning_from_use
import numpy as np

from realm_jax.index import fusion
from realm_jax.knowledge_base.learning import search, use_memory
from realm_jax.knowledge_base.learning.past_questions import PastQuestion
from realm_jax.knowledge_base.store.snapshot import Ranked


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Infused(learning_from_use.Scored):
  """Compares questions with other keys than the embeddings of passages."""

  keys_NxE: np.ndarray

  @functools.lru_cache(maxsize=4)  # noqa: B019
  def _all_of(self, question, by):
    assert self.embed is not None, "there is an encoder"
    scores_N = self.keys_NxE @ self.embed(question)
    if by == "fused":
      scores_N = fusion.fuse_scores(scores_N, self._bm25.scores(question)).astype(np.float32)
    return Ranked(np.arange(len(scores_N)), scores_N, np.zeros_like(scores_N))


def infused(
  snapshot: learning_from_use.Scored,
  records: Sequence[PastQuestion],
  *,
  step: float,
  bound: float,
) -> Infused:
  """Returns what searches with keys that past questions have moved."""
  assert snapshot.embed is not None, "there is an encoder"
  passages_NxE = np.concatenate([segment.embeddings() for segment in snapshot.segments])
  lengths_Nx1 = np.linalg.norm(passages_NxE, axis=1, keepdims=True)
  moves_NxE = np.zeros_like(passages_NxE)
  for record in records:
    question_E = snapshot.embed(record.question)
    rows = use_memory.rows(snapshot, record.useful)
    moves_NxE[rows] += step * question_E / np.linalg.norm(question_E)
  far_Nx1 = np.linalg.norm(moves_NxE, axis=1, keepdims=True)
  keys_NxE = passages_NxE / lengths_Nx1 + moves_NxE * np.minimum(
    1, bound / np.maximum(far_Nx1, 1e-9)
  )
  keys_NxE *= lengths_Nx1 / np.linalg.norm(keys_NxE, axis=1, keepdims=True)
  return Infused(**learning_from_use.fields_of(snapshot), keys_NxE=keys_NxE)


def main() -> None:
  parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
  parser.add_argument("--data", required=True)
  parser.add_argument("--encoder", required=True, help="directory of a sentence encoder")
  parser.add_argument("--directory", required=True, help="where knowledge bases are kept")
  parser.add_argument("--step", type=float, default=0.8)
  parser.add_argument("--bound", type=float, default=1.6)
  parser.add_argument("--rankings", nargs="+", default=["encoder", "fused"])
  parser.add_argument("--sets", nargs="+")
  arguments = parser.parse_args()
  sets = learning_from_use.question_sets(arguments.data)
  path = os.path.join(arguments.directory, learning_from_use.FIGURES)
  for name in arguments.sets or sets:
    one = sets[name]
    questions = [question.text for question in (*one.past, *one.asked)]
    snapshot, _ = learning_from_use.open_base(one.base, arguments, questions)
    records = learning_from_use.remembered(one.past, snapshot)
    moved = infused(snapshot, records, step=arguments.step, bound=arguments.bound)
    for ranking in arguments.rankings:
      searches = [functools.partial(search.hits, each, by=ranking) for each in (snapshot, moved)]
      before, after = learning_from_use.figures(one.asked, searches)
      report = learning_from_use.Report(name, ranking, path)
      report(f"keys, {arguments.step} to {arguments.bound}", len(one.past), after, before)


if __name__ == "__main__":
  main()
