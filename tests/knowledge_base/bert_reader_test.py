"""`BertForQuestionAnswering` from a Hugging Face directory as the reader of a knowledge base."""

import json

import numpy as np
import pytest
import safetensors.numpy

from realm_jax import main
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.text.wordpieces import SPECIAL_TOKENS

WORDS = ["old", "ship", "the", "moss", "is", "at", "sea", "who", "##s", "."]
SETTINGS = {
  "architectures": ["BertForQuestionAnswering"],
  "model_type": "bert",
  "vocab_size": len(SPECIAL_TOKENS) + len(WORDS),
  "hidden_size": 8,
  "num_hidden_layers": 1,
  "num_attention_heads": 2,
  "intermediate_size": 4,
  "max_position_embeddings": 40,
  "type_vocab_size": 2,
  "hidden_act": "gelu",
  "layer_norm_eps": 1e-12,
}
DOCUMENTS = [
  {"id": "moss", "title": "Old ship", "text": "Old moss is at sea.", "year": 1905},
  {"id": "ship", "text": "Moss is at the sea. The Old, old Ships is at the sea."},
]


def weights():
  """Every answer starts with `old` and ends with `ship`: each has a dimension of its own."""
  layer, size = "bert.encoder.layer.0.", SETTINGS["hidden_size"]
  dense = {
    f"{layer}{name}": (size, size)
    for name in ("attention.self.query", "attention.self.key", "attention.self.value")
  }
  dense[f"{layer}attention.output.dense"] = size, size
  dense[f"{layer}intermediate.dense"] = SETTINGS["intermediate_size"], size
  dense[f"{layer}output.dense"] = size, SETTINGS["intermediate_size"]
  found = {"qa_outputs.weight": np.eye(2, size), "qa_outputs.bias": np.array([0.5, -1])}
  for name, shape in dense.items():
    found |= {f"{name}.weight": np.zeros(shape), f"{name}.bias": np.zeros(shape[0])}
  norms = ("bert.embeddings.", f"{layer}attention.output.", f"{layer}output.")
  for name in norms:
    found |= {f"{name}LayerNorm.weight": np.ones(size), f"{name}LayerNorm.bias": np.zeros(size)}
  dimensions = np.full(SETTINGS["vocab_size"], 2)
  dimensions[len(SPECIAL_TOKENS) : len(SPECIAL_TOKENS) + 2] = 0, 1
  found["bert.embeddings.word_embeddings.weight"] = np.eye(size)[dimensions]
  for name, rows in (("position", "max_position_embeddings"), ("token_type", "type_vocab_size")):
    found[f"bert.embeddings.{name}_embeddings.weight"] = np.zeros((SETTINGS[rows], size))
  return {name: array.astype(np.float32) for name, array in found.items()}


def write(directory, tensors):
  (directory / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *WORDS]) + "\n")
  (directory / "config.json").write_text(json.dumps(SETTINGS))
  settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
  (directory / "tokenizer_config.json").write_text(json.dumps(settings))
  safetensors.numpy.save_file(tensors, directory / "model.safetensors")
  return str(directory)


def test_it_answers_without_training(tmp_path):
  base = KnowledgeBase.create(tmp_path / "kb", DOCUMENTS, language="en")
  source, workdir = write(tmp_path, weights()), str(tmp_path / "workdir")
  lengths = ["--query_length=20", "--passage_length=40", "--beam.joint_length=40"]
  args = [f"--source={source}", f"--workdir={workdir}", *lengths]
  assert main.main(["import_checkpoint", *args]) == 0
  for reader in (source, workdir):
    base.add_reader(reader)
    answer = base.answer("who is at sea")
    assert (answer.text, answer.start) == ("Old, old Ships", 24)
    assert answer.hits[answer.place].id == "ship"
    assert base.answer("who is at sea", where={"year": 1905}).text == "Old"


def test_a_reader_that_lacks_weights_is_refused(tmp_path):
  tensors = weights()
  del tensors["qa_outputs.bias"]
  base = KnowledgeBase.create(tmp_path / "kb", DOCUMENTS)
  with pytest.raises(ValueError, match="lacks weights of its span reader: span_reader/span_score/"):
    base.add_reader(write(tmp_path, tensors))
