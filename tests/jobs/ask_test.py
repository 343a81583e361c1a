import pytest

from realm_jax.checkpoints.opening import Sources
from realm_jax.jobs.answering.ask import ask


@pytest.mark.parametrize(
  "settings", [{"target": "oak"}, {"sources": Sources(passages="passages")}, {"answers": 7}]
)
def test_a_knowledge_base_is_asked_without_a_model_or_a_target(settings):
  with pytest.raises(ValueError, match=r"^kb is a knowledge base; give it and the question alone"):
    ask("kb", "What is a tree?", **settings)
