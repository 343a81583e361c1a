"""The benchmark of learning from use scores passages once, and ranks as the product does."""

import dataclasses
import pathlib
import sys

import pytest

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.learning import adapter, search
from realm_jax.knowledge_base.store.snapshot import Snapshot
from tests.knowledge_base import tiny_models

sys.path.append(str(pathlib.Path(__file__).parent.parent / "benchmarks"))
import learning_from_use

TEXTS = [
  {"id": str(n), "text": f"{'moss' if n % 3 else 'oak'} {n % 4} number {n}"} for n in range(30)
]


@pytest.mark.parametrize("by", ["words", "encoder", "fused"])
def test_passages_that_are_scored_once_rank_as_by_a_search(tmp_path, by):
  encoder = tiny_models.write(tmp_path / "encoder")
  base = KnowledgeBase.create(tmp_path / "kb", TEXTS, language="en", encoder=encoder)
  for question in ("moss 1", "oak 2 number"):
    base.feedback(question, useful=("7", 0), not_useful=("3", 0))
  snapshot, memory = base._folder.newest(), base._folder.memory.newest()
  fields = {field.name: getattr(snapshot, field.name) for field in dataclasses.fields(Snapshot)}
  scored = learning_from_use.Scored(**fields)
  for question in ("moss 1", "oak 2 number", "1", "nothing"):
    for k in (1, 5, 99):
      found = [search.hits(each, question, k, by=by, memory=memory) for each in (snapshot, scored)]
      assert found[0] == found[1]
    given = {"by": by, "question_E": adapter.compared(snapshot, snapshot.embed(question))}
    assert [*scored.best(question, 3, **given).rows] == [*snapshot.best(question, 3, **given).rows]
