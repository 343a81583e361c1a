"""Models of sentence-transformers as encoders of knowledge bases."""

import pickle

import numpy as np
import pytest
import tokenizers

from realm_jax import main
from realm_jax.knowledge_base import text_encoders
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase

library = pytest.importorskip("sentence_transformers")
modules = pytest.importorskip("sentence_transformers.models")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.interop

DOCUMENTS = [
  {"id": "moss", "title": "Moss", "text": "Moss is green."},
  {"id": "oak", "text": "An oak is a tall tree."},
]
WORDS = [
  "[UNK]",
  "[CLS]",
  "[SEP]",
  "[PAD]",
  "moss",
  "is",
  "green",
  "an",
  "oak",
  "a",
  "tall",
  "tree",
]


def tokenizer():
  vocabulary = {word: number for number, word in enumerate(WORDS)}
  made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
  made.normalizer = tokenizers.normalizers.Lowercase()
  made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
  return made


def save_static(path):
  embedding = modules.StaticEmbedding(tokenizer(), embedding_dim=16)
  library.SentenceTransformer(modules=[embedding]).save(str(path))


def save_modernbert(path):
  fast = transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizer(), unk_token="[UNK]", pad_token="[PAD]"
  )
  fast.cls_token, fast.sep_token = "[CLS]", "[SEP]"
  config = transformers.ModernBertConfig(
    vocab_size=len(WORDS),
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=2,
    pad_token_id=3,
  )
  transformers.ModernBertModel(config).save_pretrained(path / "bare")
  fast.save_pretrained(path / "bare")
  bert = modules.Transformer(str(path / "bare"))
  pooling = modules.Pooling(16, "mean")
  prompts = {"query": "an oak ", "document": ""}
  library.SentenceTransformer(modules=[bert, pooling], prompts=prompts).save(str(path))


@pytest.mark.parametrize("save", [save_static, save_modernbert])
def test_a_model_is_loaded_again_from_its_directory(tmp_path, save):
  save(tmp_path / "model")
  address = f"sentence-transformers:{tmp_path / 'model'}"
  base = KnowledgeBase.create(tmp_path / "kb", DOCUMENTS, encoder=address, language="en")
  model = library.SentenceTransformer(str(tmp_path / "model"))
  question_E = model.encode_query("a tall tree")
  texts_NxE = model.encode_document(["Moss\nMoss is green.", "An oak is a tall tree."])
  lengths = np.linalg.norm(texts_NxE, axis=1) * np.linalg.norm(question_E)
  expected = dict(zip(["moss", "oak"], texts_NxE @ question_E / lengths, strict=True))
  for opened in (KnowledgeBase(base.path), KnowledgeBase(base.path, encoder=model), base):
    for again in (opened, pickle.loads(pickle.dumps(opened))):
      found = {hit.id: hit.score for hit in again.search("a tall tree", by="encoder")}
      assert found == pytest.approx(expected, abs=2e-3)
  base.add([{"id": "tree", "text": "A tree."}])
  # Weights are random, so that what is best is not known.
  assert {hit.id for hit in base.search("a tree", by="encoder")} == {"moss", "oak", "tree"}


def test_one_that_is_gone_is_named_and_words_still_search(tmp_path, capsys):
  save_static(tmp_path / "model")
  address = f"sentence-transformers:{tmp_path / 'model'}"
  path = str(tmp_path / "kb")
  KnowledgeBase.create(path, DOCUMENTS, encoder=address, language="en")
  text_encoders._loaded.clear()
  (tmp_path / "model").rename(tmp_path / "moved")
  assert main.main(["kb", "search", path, "tree"]) == 1
  error = capsys.readouterr().err
  assert "no directory" in error and "words" in error and len(error.splitlines()) == 1
  assert main.main(["kb", "search", path, "tree", "--by=words"]) == 0
  moved = KnowledgeBase(path, encoder=f"sentence-transformers:{tmp_path / 'moved'}")
  assert moved.search("tree", by="encoder", k=1)[0].id == "oak"


def test_another_model_is_refused(tmp_path):
  save_static(tmp_path / "model")
  save_static(tmp_path / "other")
  KnowledgeBase.create(
    tmp_path / "kb", DOCUMENTS, encoder=f"sentence-transformers:{tmp_path / 'model'}"
  )
  with pytest.raises(ValueError, match="of their length away"):
    KnowledgeBase(tmp_path / "kb", encoder=f"sentence-transformers:{tmp_path / 'other'}")
