"""Names, shapes, dtypes and logical axes must not change, or checkpoints no longer load."""

import flax.traverse_util
import jax
import pytest
from flax.core import meta

from realm_jax.models import dual_encoder, realm
from tests.configurations import tiny_bert

BERT = tiny_bert(max_length=10)
BERT_PARAMETERS = """\
bert/embedding_norm/bias float32 embed=8
bert/embedding_norm/scale float32 embed=8
bert/layers_0/attention/key/bias float32 heads=2 kv=4
bert/layers_0/attention/key/kernel float32 embed=8 heads=2 kv=4
bert/layers_0/attention/output/bias float32 embed=8
bert/layers_0/attention/output/kernel float32 heads=2 kv=4 embed=8
bert/layers_0/attention/query/bias float32 heads=2 kv=4
bert/layers_0/attention/query/kernel float32 embed=8 heads=2 kv=4
bert/layers_0/attention/value/bias float32 heads=2 kv=4
bert/layers_0/attention/value/kernel float32 embed=8 heads=2 kv=4
bert/layers_0/attention_norm/bias float32 embed=8
bert/layers_0/attention_norm/scale float32 embed=8
bert/layers_0/mlp_in/bias float32 mlp=12
bert/layers_0/mlp_in/kernel float32 embed=8 mlp=12
bert/layers_0/mlp_norm/bias float32 embed=8
bert/layers_0/mlp_norm/scale float32 embed=8
bert/layers_0/mlp_out/bias float32 embed=8
bert/layers_0/mlp_out/kernel float32 mlp=12 embed=8
bert/position_embedding float32 position=10 embed=8
bert/segment_embedding float32 segment=2 embed=8
bert/word_embedding/embedding float32 vocab=11 embed=8
"""
TOWER_PARAMETERS = f"""\
{BERT_PARAMETERS}\
pooler/dense/bias float32 embed_out=8
pooler/dense/kernel float32 embed=8 embed_out=8
projection/bias float32 projection=4
projection/kernel float32 embed=8 projection=4
projection_norm/bias float32 projection=4
projection_norm/scale float32 projection=4
"""
KNOWLEDGE_AUGMENTED_ENCODER_PARAMETERS = f"""\
{BERT_PARAMETERS}\
mlm_bias float32 vocab=11
mlm_dense/bias float32 embed_out=8
mlm_dense/kernel float32 embed=8 embed_out=8
mlm_norm/bias float32 embed=8
mlm_norm/scale float32 embed=8
"""


def describe(params):
  rows = flax.traverse_util.flatten_dict(
    params, sep="/", is_leaf=lambda _, leaf: isinstance(leaf, meta.AxisMetadata)
  )
  return "".join(
    f"{name} {box.value.dtype} {' '.join(map('{}={}'.format, box.names, box.value.shape))}\n"
    for name, box in sorted(rows.items())
  )


@pytest.mark.parametrize(
  ("towers", "names"), [("shared", ["tower"]), ("separate", ["passage_tower", "query_tower"])]
)
def test_parameters(make_retrieved_batch, towers, names):
  batch = make_retrieved_batch(0, queries=1, passages=2, masks=1, vocab_size=11)
  config = dual_encoder.DualEncoderConfig(bert=BERT, projection_size=4, towers=towers)
  model = realm.RealmPretrainingModel(config, BERT)
  variables = jax.eval_shape(lambda: model.init(jax.random.key(0), batch, deterministic=True))
  params = variables.pop("params")
  assert not variables
  assert sorted(params) == ["dual_encoder", "knowledge_augmented_encoder"]
  assert sorted(params["dual_encoder"]) == names
  for name in names:
    assert describe(params["dual_encoder"][name]) == TOWER_PARAMETERS
  reader = params["knowledge_augmented_encoder"]
  assert describe(reader) == KNOWLEDGE_AUGMENTED_ENCODER_PARAMETERS
