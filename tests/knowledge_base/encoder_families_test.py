"""Encoders of three families, from the first document to the reopened folder."""

import json
import os
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.store import edit
from tests.knowledge_base import tiny_models

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WORDS = [f"{a}{b}ing" for a in "bdfgklmprt" for b in ("al", "en", "or", "ush")]
DOCUMENTS = [{"id": word, "text": f"Something about {word}."} for word in WORDS]


def bert(directory):
  """A directory of weights, which the folder copies."""
  return tiny_models.write(directory) if not os.path.exists(directory) else str(directory)


def hashed_words(directory):
  """A function; nothing of it can be stored."""
  del directory

  def encode(texts):
    vectors = np.zeros((len(texts), 64), np.float32)
    for vector, text in zip(vectors, texts, strict=True):
      for word in text.lower().strip(".").split():
        vector[zlib.crc32(word.encode()) % 64] += 1
    return vectors

  return encode


def distilbert(directory):
  """An object of sentence-transformers, of an architecture that is not BERT's."""
  library = pytest.importorskip("sentence_transformers")
  if not os.path.exists(directory):
    import tokenizers
    import torch
    import transformers

    torch.manual_seed(0)
    vocabulary = ["[PAD]", "[UNK]", "something", "about", "who", "knows", ".", *WORDS]
    model = tokenizers.models.WordLevel({w: i for i, w in enumerate(vocabulary)}, "[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
      tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(directory)
    sizes = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32}
    config = transformers.DistilBertConfig(vocab_size=len(vocabulary), **sizes)
    transformers.DistilBertModel(config).save_pretrained(directory)
  return library.SentenceTransformer(str(directory), device="cpu")


FAMILIES = {family.__name__: family for family in (bert, hashed_words, distilbert)}
ADD = """
import sys, time
from realm_jax.knowledge_base.store import edit
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from tests.knowledge_base.encoder_families_test import DOCUMENTS, FAMILIES
edit._PASSAGES_AT_ONCE = 8
stage = edit.Embedder._stage
def slowly(*args):
  stage(*args)
  time.sleep(0.3)
edit.Embedder._stage = slowly
family, model, path = sys.argv[1:]
given = None if family == "bert" else FAMILIES[family](model)
KnowledgeBase(path, encoder=given).add(DOCUMENTS)
"""


def scores(base, question):
  return {hit.id: hit.score for hit in base.search(question, k=len(WORDS), by="encoder")}


@pytest.mark.parametrize(
  "family", ["bert", "hashed_words", pytest.param("distilbert", marks=pytest.mark.interop)]
)
def test_it_is_created_killed_resumed_trained_and_reopened(family, tmp_path, monkeypatch):
  model, path = tmp_path / "model", str(tmp_path / "kb")
  encoder = FAMILIES[family](model)
  base = KnowledgeBase.create(path, DOCUMENTS[:1], encoder=encoder, language="en")
  assert base.search("who knows")[0].id == WORDS[0]

  killed = subprocess.Popen([sys.executable, "-c", ADD, family, str(model), path])
  staged = os.path.join(path, "staged")
  while not os.path.exists(staged) or len(os.listdir(staged)) < 2:
    assert killed.poll() is None
    time.sleep(0.01)
  killed.kill()
  killed.wait()
  with open(os.path.join(staged, min(os.listdir(staged))), "wb") as file:
    file.write(b"half")
  assert len(base) == 1 and base.delete([]).deleted == 0 and len(os.listdir(staged)) >= 2, "kept"
  monkeypatch.setattr(edit, "_PASSAGES_AT_ONCE", 8)
  written, stage = [], edit.Embedder._stage
  monkeypatch.setattr(
    edit.Embedder, "_stage", lambda *given: (written.append(given), stage(*given))
  )
  base.update(DOCUMENTS)
  assert len(base) == len(WORDS) and len(written) < 4, "39 are 5 parts, of which one was whole"
  assert not os.listdir(staged)
  fresh = KnowledgeBase.create(tmp_path / "fresh", DOCUMENTS, encoder=encoder, language="en")
  question = f"who knows {WORDS[7]}"
  assert scores(base, question) == pytest.approx(scores(fresh, question), rel=1e-4, abs=1e-5)

  asked = [
    {"question": f"who {n} knows {word}", "answer": word} for n in range(3) for word in WORDS
  ]
  (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, asked)))
  choice = base.train(questions=tmp_path / "questions.jsonl", minutes=5)
  assert {"start", "adapted"} <= choice.means.keys()
  assert ("trained" in choice.means) == (family == "bert"), "only ours has a tower of questions"
  past = asked[5]["question"]
  hits = base.search(past, k=3)
  assert hits[0].id == WORDS[5] and hits[0].useful_for

  again = KnowledgeBase(path, encoder=None if family == "bert" else FAMILIES[family](model))
  found = again.search(past, k=3)
  assert [hit.id for hit in found] == [hit.id for hit in hits]
  assert [hit.score for hit in found] == pytest.approx([hit.score for hit in hits], rel=1e-4)
  if family != "bert":
    with pytest.raises(ValueError, match="give it to"):
      KnowledgeBase(path).search(past)
