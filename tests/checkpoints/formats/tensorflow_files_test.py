import dataclasses
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from realm_jax.checkpoints.formats import huggingface_names, imported_model, tensorflow_files
from realm_jax.checkpoints.formats.huggingface_files import Source
from tests.checkpoints.formats.conftest import assert_fills

# Hugging Face's beginnings of names, and those of the release: (embedder, reader).
PRETRAINED = ("module/module/module/", "module/module/")
FINE_TUNED = ("module/module/module/module/", "module/module/module/")
READER_HEADS = {
  "qa_outputs.dense_intermediate": "dense",
  "qa_outputs.dense_output": "dense_1",
  "qa_outputs.layer_normalization": "layer_normalization",
}


def tensorflow_name(name):
  """Names a weight of Hugging Face's as TensorFlow's BERT does."""
  name = name.replace(".layer.", ".layer_")
  parts = name.split(".")
  if parts[-2].endswith("_embeddings"):
    parts.pop()
  elif name == "cls.predictions.bias":
    parts[-1] = "output_bias"
  elif "norm" in parts[-2].lower():
    parts[-1] = {"weight": "gamma", "bias": "beta"}[parts[-1]]
  else:
    parts[-1] = {"weight": "kernel", "bias": "bias"}[parts[-1]]
  return "/".join(parts)


def save(prefix, variables):
  prefix.parent.mkdir(parents=True, exist_ok=True)
  names = sorted(variables)
  tf.raw_ops.SaveV2(
    prefix=str(prefix),
    tensor_names=names,
    shape_and_slices=[""] * len(names),
    tensors=[tf.constant(variables[name]) for name in names],
  )


def variables(weights, *, bert="", heads="", renamed=()):
  """Names weights as TensorFlow does, with prefix `bert` for BERT and masked LM, else `heads`."""
  found = {}
  for name, array in weights.items():
    for theirs, ours in dict(renamed).items():
      name = name.replace(theirs, ours)
    inner = name.startswith(("bert.", "cls.predictions."))
    variable = tensorflow_name(name)
    variable = (bert if inner else heads) + variable
    found[variable] = array.T if variable.endswith("/kernel") else array
  return found


def test_googles_bert(make_masked_lm, bert_config, tmp_path):
  network = make_masked_lm(0)
  rest = {
    "global_step": np.int64(3),
    "bert/embeddings/word_embeddings/adam_m": np.zeros(2, np.float32),
    "cls/seq_relationship/output_weights": np.zeros((2, 8), np.float32),
    "cls/seq_relationship/output_bias": np.zeros(2, np.float32),
  }
  save(tmp_path / "bert_model.ckpt", variables(network.weights("bert.")) | rest)
  settings = huggingface_names.config_to_json(bert_config) | {"hidden_act": "gelu"}
  (tmp_path / "bert_config.json").write_text(json.dumps(settings))
  for path in (tmp_path, tmp_path / "bert_model.ckpt"):
    assert tensorflow_files.is_checkpoint(str(path))
    model = imported_model.find([tensorflow_files.read(str(path))])
    assert_fills(model, ("knowledge_augmented_encoder", network))
    # Google's code computes the tanh approximation under this name.
    assert model.knowledge_augmented_encoder == dataclasses.replace(bert_config, dtype="auto")
    assert model.unused == ()


@pytest.mark.parametrize(("bert", "heads"), [PRETRAINED, FINE_TUNED])
@pytest.mark.parametrize(("norm", "epsilon"), [("LayerNorm", 1e-12), ("layer_normalization", 1e-3)])
def test_released_embedder(bert, heads, norm, epsilon, make_tower, bert_config, tmp_path):
  tower = make_tower(0)
  renamed = {"cls.dense": "dense", "cls.LayerNorm": norm}
  found = variables(tower.weights("bert."), bert=bert, heads=heads, renamed=renamed)
  assert f"{heads}{norm}/gamma" in found and f"{bert}bert/pooler/dense/kernel" in found
  save(tmp_path / "variables" / "variables", found)
  source = tensorflow_files.read(str(tmp_path))
  source = Source(
    name="x",
    weights=source.weights,
    settings=huggingface_names.config_to_json(bert_config),
    projection_epsilon=source.projection_epsilon,
  )
  model = imported_model.find([source])
  assert_fills(model, ("dual_encoder/tower", tower))
  assert model.dual_encoder.layer_norm_epsilon == epsilon
  assert model.unused == ()


def test_fine_tuned_model_of_the_last_step(make_tower, make_reader, bert_config, tmp_path):
  tower, reader = make_tower(0), make_reader(1)
  folder = tmp_path / "export" / "best_default" / "checkpoint"
  for step, seed in ((9, 2), (100, 1)):
    save(
      folder / f"model.ckpt-{step}",
      variables(
        tower.weights("bert."),
        bert=FINE_TUNED[0],
        heads=FINE_TUNED[1],
        renamed={"cls.dense": "dense", "cls.LayerNorm": "LayerNorm"},
      )
      | variables(
        make_reader(seed).weights("bert."),
        bert="reader/module/",
        heads="reader/",
        renamed=READER_HEADS,
      ),
    )
  source = tensorflow_files.read(str(tmp_path))
  source = Source(
    name="x", weights=source.weights, settings=huggingface_names.config_to_json(bert_config)
  )
  model = imported_model.find([source])
  assert_fills(model, ("dual_encoder/tower", tower))
  assert_fills(model, ("span_reader", reader))
  assert model.span_reader.layer_norm_epsilon == 1e-3
  assert model.span_reader.max_span_width == 10
  assert model.knowledge_augmented_encoder is None


def test_matrix_of_embeddings(tmp_path):
  matrix = np.arange(6, dtype=np.float32).reshape(3, 2)
  save(tmp_path / "encoded" / "encoded.ckpt", {"block_emb": matrix})
  for path in (tmp_path / "encoded", tmp_path / "encoded" / "encoded.ckpt"):
    np.testing.assert_array_equal(tensorflow_files.read_matrix(str(path), "block_emb"), matrix)
  with pytest.raises(ValueError, match="no variable other in a TensorFlow checkpoint at"):
    tensorflow_files.read_matrix(str(tmp_path / "encoded"), "other")
  with pytest.raises(ValueError, match="no variable block_emb"):
    tensorflow_files.read_matrix(str(tmp_path), "block_emb")


@pytest.mark.parametrize("lower_case", [True, False])
def test_casing_is_a_constant_of_the_module(lower_case, tmp_path):
  assert tensorflow_files.lower_case(str(tmp_path)) is None
  module = saved_model_pb2.SavedModel()
  graph = module.meta_graphs.add()
  node = graph.graph_def.node.add(name="casing", op="Const")
  node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(lower_case))
  graph.signature_def["tokenization_info"].outputs["do_lower_case"].name = "casing:0"
  (tmp_path / "saved_model.pb").write_bytes(module.SerializeToString())
  assert tensorflow_files.lower_case(str(tmp_path)) is lower_case


@pytest.mark.parity
def test_names_are_those_of_hugging_faces_loader(tmp_path):
  """Both read a checkpoint of the released shape; the weights must be equal."""
  transformers = pytest.importorskip("transformers")
  realm = pytest.importorskip("transformers.models.deprecated.realm.modeling_realm")
  config = transformers.RealmConfig(
    vocab_size=11,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=10,
    retriever_proj_size=4,
    span_hidden_size=3,
    num_block_records=1,
  )
  model = transformers.RealmForOpenQA(config)
  random = np.random.default_rng(0)
  found = {}
  for name, tensor in model.state_dict().items():
    part, _, rest = name.partition(".")
    if part not in ("embedder", "reader") or "position_ids" in name or "decoder" in name:
      continue
    rest = rest.replace("realm.", "bert.")
    for theirs, ours in (
      READER_HEADS | {"cls.dense": "dense", "cls.LayerNorm": "LayerNorm"}
    ).items():
      rest = rest.replace(theirs, ours)
    inner = rest.startswith(("bert.", "cls.predictions."))
    if part == "embedder":
      prefix = FINE_TUNED[0] if inner else FINE_TUNED[1]
    else:
      prefix = "reader/module/" if inner else "reader/"
    variable = prefix + tensorflow_name(rest)
    shape = tensor.shape[::-1] if variable.endswith("/kernel") else tensor.shape
    found[variable] = random.normal(size=shape).astype(np.float32)
  prefix = pathlib.Path(tmp_path) / "model.ckpt-7"
  save(prefix, found)
  theirs = realm.load_tf_weights_in_realm(model, config, str(prefix)).state_dict()
  ours = tensorflow_files.read(str(prefix)).weights
  assert len(ours) == len(found)
  for name, array in ours.items():
    name = name.replace(".bert.", ".realm.")
    np.testing.assert_array_equal(array, theirs[name].numpy(), err_msg=name)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_records_are_read_in_order(suffix, tmp_path):
  records = [b"one", "zwölf".encode(), b"", b"\x00\xff"]
  path = tmp_path / f"blocks.tfr{suffix}"
  with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions("GZIP" if suffix else "")) as writer:
    for record in records:
      writer.write(record)
  assert list(tensorflow_files.read_records(str(path))) == records
  with pytest.raises(FileNotFoundError, match="no records at"):
    tensorflow_files.read_records(str(tmp_path / "absent.tfr"))
