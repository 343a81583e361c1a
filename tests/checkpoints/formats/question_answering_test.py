"""Imported span readers against `BertForQuestionAnswering`, on 200 questions."""

import jax
import numpy as np
import pytest

from realm_jax.checkpoints import importing
from realm_jax.checkpoints.formats import imported_model
from realm_jax.devices.datatypes import Tokens
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.models import bert
from realm_jax.models.open_qa import SpanReader
from realm_jax.text.wordpieces import SPECIAL_TOKENS

WORDS = ["river", "town", "north", "##s", "##er", "the", "cafe", "12", "of", ",", "-", "中"]
TEXTS = ["River", "towns", "North", "norther", "the", "café", "12", "of", ",", "-", "中"]
COUNT, WIDTH = 200, 30

pytestmark = [pytest.mark.parity, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def float32_here(monkeypatch):
  """Imported models compute in the machine's fastest dtype; tolerances are float32's."""
  monkeypatch.setattr(bert, "fastest_dtype", lambda: "float32")


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
  """Writes a small reader with random weights, as transformers does; returns it with the path."""
  transformers = pytest.importorskip("transformers")
  pytest.importorskip("torch").manual_seed(0)
  path = tmp_path_factory.mktemp("reader")
  (path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *WORDS]) + "\n")
  config = transformers.BertConfig(
    vocab_size=len(SPECIAL_TOKENS) + len(WORDS),
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    initializer_range=0.5,
    max_position_embeddings=128,
  )
  model = transformers.BertForQuestionAnswering(config).eval()
  model.save_pretrained(path)
  tokenizer = transformers.BertTokenizerFast(str(path / "vocab.txt"), do_lower_case=True)
  tokenizer.save_pretrained(path)
  return str(path), model, tokenizer


@pytest.fixture(scope="module")
def questions():
  """Returns 200 questions with a passage each, of up to 60 words."""
  random = np.random.default_rng(0)

  def draw(least, most):
    return " ".join(random.choice(TEXTS, random.integers(least, most)))

  return [("river " + draw(1, 10), "River " + draw(1, 60)) for _ in range(COUNT)]


@pytest.fixture(scope="module")
def expected(reader, questions):
  """Returns tokens, offsets, and scores of start and end by transformers of each question."""
  torch = pytest.importorskip("torch")
  _, model, tokenizer = reader
  found = []
  for question, passage in questions:
    inputs = tokenizer(question, passage, return_tensors="pt", return_offsets_mapping=True)
    offsets = inputs.pop("offset_mapping")[0].numpy()
    with torch.no_grad():
      outputs = model(**inputs)
    arrays = {name: value[0].numpy() for name, value in inputs.items()}
    found.append((arrays, offsets, outputs.start_logits[0].numpy(), outputs.end_logits[0].numpy()))
  return found


def best(inputs, starts, ends):
  """Returns the first and the last wordpiece of the best span of the passage."""
  places = np.flatnonzero(inputs["token_type_ids"])[:-1]
  spans = [(i, j) for i in places for j in places if i <= j < i + WIDTH]
  return max(spans, key=lambda span: starts[span[0]] + ends[span[1]])


def test_scores_are_those_of_transformers(reader, expected):
  model = imported_model.find([importing.read_source(reader[0])])
  params, _ = importing.imported_params(model, seed=0)
  longest = max(len(starts) for _, _, starts, _ in expected)

  def padded(name):
    rows = [inputs[name] for inputs, *_ in expected]
    return np.stack([np.pad(row, (0, longest - len(row))) for row in rows]).astype(np.int32)

  tokens = Tokens(
    ids=padded("input_ids"),
    mask=padded("attention_mask").astype(bool),
    segments=padded("token_type_ids"),
  )
  assert model.span_reader is not None
  module = SpanReader(model.span_reader)
  apply = jax.jit(module.apply, static_argnames="deterministic")
  logits_FxTxW = apply({"params": params["span_reader"]}, tokens, deterministic=True)
  for logits_TxW, (inputs, _, starts, ends) in zip(np.asarray(logits_FxTxW), expected, strict=True):
    first, last = best(inputs, starts, ends)
    assert np.unravel_index(logits_TxW.argmax(), logits_TxW.shape) == (first, last - first)
    for start, width in np.argwhere(logits_TxW > np.finfo(np.float32).min):
      score = starts[start] + ends[start + width]
      np.testing.assert_allclose(logits_TxW[start, width], score, rtol=0, atol=1e-4)


def test_answers_are_the_best_spans_of_transformers(reader, questions, expected, tmp_path):
  documents = [{"id": str(i), "text": text, "n": i} for i, (_, text) in enumerate(questions)]
  base = KnowledgeBase.create(tmp_path / "kb", documents, language="en", reader=reader[0])
  for i, ((question, text), (inputs, offsets, starts, ends)) in enumerate(
    zip(questions, expected, strict=True)
  ):
    first, last = best(inputs, starts, ends)
    start, limit = offsets[first][0], offsets[last][1]
    # Answers are whole words.
    start = next(w for w in range(start, -1, -1) if w == 0 or not text[w - 1 : w + 1].isalpha())
    while limit < len(text) and text[limit - 1 : limit + 1].isalpha():
      limit += 1
    answer = base.answer(question, where={"n": i})
    assert (answer.text, answer.start) == (text[start:limit], start), (question, text)
