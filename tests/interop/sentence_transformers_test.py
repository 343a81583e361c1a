"""Models of sentence-transformers as encoders of knowledge bases."""

import json
import pickle

import numpy as np
import pytest
import tokenizers

from realm_jax import main
from realm_jax.knowledge_base.encoders import text_encoders
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase

library = pytest.importorskip("sentence_transformers")
modules = pytest.importorskip("sentence_transformers.models")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.interop

DOCUMENTS = [
  {"id": "moss", "title": "Moss", "text": "Moss is green."},
  {"id": "oak", "text": "An oak is a tall tree."},
]
WORDS = "[UNK] [CLS] [SEP] [PAD] moss is green an oak a tall tree".split()


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
  for opened in (*(KnowledgeBase(base.path, encoder=e) for e in (address, model)), base):
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
  assert main.main(["kb", "search", path, "tree", f"--encoder={address}"]) == 1
  error = capsys.readouterr().err
  assert "no directory" in error and "words" in error and len(error.splitlines()) == 1
  assert main.main(["kb", "search", path, "tree", "--by=words"]) == 0
  moved = KnowledgeBase(path, encoder=f"sentence-transformers:{tmp_path / 'moved'}")
  assert moved.search("an oak is a tall tree.", by="encoder", k=1)[0].id == "oak"


def test_another_model_is_refused(tmp_path):
  save_static(tmp_path / "model")
  save_static(tmp_path / "other")
  KnowledgeBase.create(
    tmp_path / "kb", DOCUMENTS, encoder=f"sentence-transformers:{tmp_path / 'model'}"
  )
  with pytest.raises(ValueError, match="of their length away"):
    KnowledgeBase(tmp_path / "kb", encoder=f"sentence-transformers:{tmp_path / 'other'}")


CODE = """
import os
import torch

open(os.environ["REALM_TEST_MARK"], "w").close()

class Evil(torch.nn.Identity):
  @classmethod
  def load(cls, *args, **kwargs):
    return cls()
"""


def with_code(path):
  """A model that begins with code of its own."""
  path.mkdir()
  (path / "evil.py").write_text(CODE)
  modules_ = [{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}]
  (path / "modules.json").write_text(json.dumps(modules_))


def with_routed_code(path):
  """A model whose router leads to code of its own."""
  save_static(path)
  (path / "evil.py").write_text(CODE)
  kind = "sentence_transformers.models.Router"
  (path / "modules.json").write_text(
    json.dumps([{"idx": 0, "name": "0", "path": "", "type": kind}])
  )
  routes = {"types": {"0_evil": "evil.Evil"}, "structure": {"query": ["0_evil"]}, "parameters": {}}
  (path / "router_config.json").write_text(json.dumps(routes))


@pytest.mark.parametrize("save", [with_code, with_routed_code])
def test_no_code_of_a_model_is_run(tmp_path, monkeypatch, save, capsys):
  mark = tmp_path / "ran"
  monkeypatch.setenv("REALM_TEST_MARK", str(mark))
  save(tmp_path / "model")
  address = f"--encoder=sentence-transformers:{tmp_path / 'model'}"
  (tmp_path / "moss.txt").write_text("Moss is green.")
  assert main.main(["kb", "create", str(tmp_path / "kb"), str(tmp_path / "moss.txt"), address]) == 1
  assert "evil.Evil is the model's own code, which is not run" in capsys.readouterr().err
  assert not mark.exists()


def test_a_model_that_only_the_folder_names_is_not_loaded(tmp_path, capsys):
  save_static(tmp_path / "model")
  address = f"sentence-transformers:{tmp_path / 'model'}"
  base = KnowledgeBase.create(tmp_path / "kb", DOCUMENTS, encoder=address, language="en")
  path = str(base.path)
  for arguments in (["search", path, "tree"], ["add", path, str(tmp_path / "model/README.md")]):
    assert main.main(["kb", *arguments]) == 1
    error = capsys.readouterr().err
    assert f"only loaded if you name it: --encoder={address}" in error
    assert main.main(["kb", *arguments, f"--encoder={address}"]) == 0
    capsys.readouterr()
  assert main.main(["kb", "search", path, "tree", "--by=words"]) == 0


def test_a_release_that_runs_code_of_models_is_refused(tmp_path, monkeypatch):
  save_static(tmp_path / "model")
  monkeypatch.setattr(library, "__version__", "5.7.0")
  with pytest.raises(ValueError, match="sentence-transformers 5.7.0 runs the code of models"):
    KnowledgeBase.create(tmp_path / "kb", encoder=f"sentence-transformers:{tmp_path / 'model'}")
  assert not [*(tmp_path / "kb").glob("commits/*.json")]
