import pytest

from realm_jax.checkpoints.opening import Sources
from realm_jax.index.fused_searcher import Fusion


@pytest.mark.parametrize("retriever", ["dense", "bm25"])
def test_settings_of_a_fusion_are_refused_where_nothing_is_fused(retriever):
  fusion = Fusion(weight=0.5, neighbours=0.1)
  wanted = rf"--weight, --neighbours would do nothing with retriever='{retriever}'"
  with pytest.raises(ValueError, match=wanted):
    Sources(retriever=retriever, fusion=fusion)
  assert Sources(retriever="hybrid", fusion=fusion).fusion == fusion
