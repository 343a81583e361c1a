"""Models from elsewhere: whatever their files have, a line says which model cannot be read."""

import functools
import json
import os
import random
import shutil
import struct

import flax.linen as nn
import flax.traverse_util
import jax
import numpy as np
import pytest
import safetensors.numpy

from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.formats import huggingface_files
from realm_jax.knowledge_base.encoders import models
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.text.tokenization import WordPieceTokenizer
from tests.configurations import tiny_bert
from tests.knowledge_base import hostile_folders_test, tiny_models

TOKENIZER = {
  "model": {
    "type": "WordPiece",
    "vocab": {piece: id for id, piece in enumerate(tiny_models.PIECES)},
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
  },
  "normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": None},
  "pre_tokenizer": {"type": "BertPreTokenizer"},
  "post_processor": {
    "type": "TemplateProcessing",
    "single": [
      {"SpecialToken": {"id": "[CLS]"}},
      {"Sequence": {"id": "A"}},
      {"SpecialToken": {"id": "[SEP]"}},
    ],
  },
  "added_tokens": [{"content": "[PAD]"}],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """The directory of a sentence encoder."""
  path = tmp_path_factory.mktemp("whole") / "model"
  path.mkdir()
  bert = tiny_bert(vocab_size=len(tiny_models.PIECES), max_length=64)
  config = DualEncoderConfig(bert=bert, projection_size=8, pooling="mean", output="unit_length")
  init = jax.jit(functools.partial(saved_models.init_dual_encoder, config.make()))
  params = nn.unbox(init(jax.random.key(0)))
  params = flax.traverse_util.flatten_dict(params["tower"], sep="/")
  params = {name: np.asarray(value) for name, value in params.items()}
  tokenizer = WordPieceTokenizer(tiny_models.PIECES)
  huggingface_files.write_sentence_encoder(
    str(path), params, config=config, tokenizer=tokenizer, max_length=48
  )
  (path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
  return path


def setting(file, **changes):
  def change(path):
    content = json.loads((path / file).read_text())
    (path / file).write_text(json.dumps({**content, **changes}))

  return change


def text(file, content):
  return lambda path: (path / file).write_text(content)


def weights(header, content=bytes(4)):
  encoded = json.dumps(header).encode()
  content = struct.pack("<Q", len(encoded)) + encoded + content
  return lambda path: (path / "model.safetensors").write_bytes(content)


def pipe(path):
  (path / "model.safetensors").unlink()
  os.mkfifo(path / "model.safetensors")


def pipe_of_settings(path):
  (path / "tokenizer_config.json").unlink()
  os.mkfifo(path / "tokenizer_config.json")


HOSTILE = {
  "many layers": (setting("config.json", num_hidden_layers=10**8), "num_layers=100000000"),
  "layers": (setting("config.json", num_hidden_layers="x"), "num_layers='x'"),
  "no layers": (setting("config.json", num_hidden_layers=0), "num_layers=0"),
  "wide": (setting("config.json", hidden_size=2**40), "shape"),
  "long": (setting("config.json", hidden_size=10**400), "give a smaller one"),
  "heads": (setting("config.json", num_attention_heads=0), "num_heads=0"),
  "half": (setting("config.json", intermediate_size=1.5), "mlp_size=1.5"),
  "words": (setting("config.json", vocab_size=-1), "vocab_size=-1"),
  "epsilon": (setting("config.json", layer_norm_eps=float("nan")), "layer_norm_epsilon=nan"),
  "activation": (setting("config.json", hidden_act=["gelu"]), "list"),
  "deep": (text("config.json", "[" * 100_000), "nested too deep"),
  "digits": (text("config.json", f'{{"vocab_size": {"9" * 9999}}}'), "4,300 digits"),
  "list": (text("config.json", "[]"), "JSON list"),
  "deep tokenizer": (text("tokenizer.json", '{"a":' * 100_000), "nested too deep"),
  "case": (setting("tokenizer_config.json", do_lower_case=7), "do_lower_case=7"),
  "accents": (setting("tokenizer_config.json", strip_accents="x"), "strip_accents is 'x'"),
  "tokens": (setting("tokenizer.json", added_tokens=7), "int"),
  "vocabulary": (setting("tokenizer.json", model={"vocab": {"a": "x"}}), "gaps"),
  "length": (setting("sentence_bert_config.json", max_seq_length="x"), "str"),
  "prompts": (setting("config_sentence_transformers.json", prompts=["x"]), "list"),
  "no text": (setting("config_sentence_transformers.json", prompts={"query": 5}), "are no texts"),
  "prompt": (
    setting("config_sentence_transformers.json", prompts={"query": "a " * 100_000}),
    "query_prompt has 100000 wordpieces",
  ),
  "huge": (weights({"a": {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 4]}}), ""),
  "objects": (weights({"a": {"dtype": "OBJECT", "shape": [1], "data_offsets": [0, 4]}}), ""),
  "outside": (text("model.safetensors.index.json", '{"weight_map": {"a": "../a"}}'), "a file next"),
  "number": (text("model.safetensors.index.json", '{"weight_map": {"a": 5}}'), "int"),
  "no map": (text("model.safetensors.index.json", '{"metadata": {}}'), "lacks 'weight_map'"),
  "added": (setting("tokenizer_config.json", added_tokens_decoder=[1]), "another type"),
  "pieces": (setting("tokenizer.json", post_processor={"single": [{}]}), "another type"),
  "pipe": (pipe, "no file"),
  "pipe of settings": (pipe_of_settings, "no file"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_model_is_a_line_with_its_directory(whole, tmp_path, name):
  change, message = HOSTILE[name]
  path = tmp_path / "model"
  shutil.copytree(whole, path)
  if name in ("outside", "number", "no map"):
    (path / "model.safetensors").unlink()
  change(path)
  with pytest.raises(ValueError, match=f"{path}.*{message}"):
    models.copy_model(str(tmp_path / "kb"), path, reads=False)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_values_files_have_a_line_names_the_model(whole, tmp_path, seed):
  draw, path = random.Random(seed), tmp_path / "model"
  for _ in range(10):
    shutil.copytree(whole, path)
    file = draw.choice(sorted(path.rglob("*.json")) + 4 * [path / "model.safetensors"])
    if file.suffix == ".json":
      changed = hostile_folders_test.damaged(json.loads(file.read_text()), draw)
      file.write_text(json.dumps(changed))
    else:
      arrays = safetensors.numpy.load_file(file)
      name = draw.choice(sorted(arrays))
      arrays[name] = hostile_folders_test.damaged_array(arrays[name], draw)
      file.write_bytes(
        safetensors.numpy.save({k: np.ascontiguousarray(v) for k, v in arrays.items()})
      )
    try:
      models.copy_model(str(tmp_path / "kb"), path, reads=False)
    except (ValueError, OSError) as error:
      assert str(path) in str(error)
    shutil.rmtree(path)
