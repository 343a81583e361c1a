import json
import re

import jax
import numpy as np
import pytest

from realm_jax import datatypes, partitioning, tokenization
from realm_jax.convert import bert_configs, huggingface_names, safetensors_files
from realm_jax.jobs import saved_models
from realm_jax.jobs.import_checkpoint import import_checkpoint
from realm_jax.models import bert
from realm_jax.retrieval.retriever import RetrievalConfig

CONFIG = bert.BertConfig(
  vocab_size=8, hidden_size=4, num_layers=1, num_heads=2, mlp_size=6, max_length=12
)
VOCABULARY = [*tokenization.SPECIAL_TOKENS, "a", "b", "##c"]
LENGTHS = {
  "retrieval": RetrievalConfig(num_passages=2, passage_length=8, joint_length=12),
  "query_length": 6,
}


@pytest.fixture
def bert_directory(tmp_path):
  """A masked LM with its pooler, all weights random."""
  directory = tmp_path / "bert"
  directory.mkdir()
  random = np.random.default_rng(0)
  sizes = {"D": CONFIG.hidden_size, "F": CONFIG.mlp_size, "V": CONFIG.vocab_size}
  names = huggingface_names.encoder(1) | huggingface_names.pooler()
  weights = {}
  for ours, theirs in names.items():
    rows = {"word_embedding/embedding": "V", "layers_0/mlp_in/kernel": "F"}.get(ours, "D")
    columns = "F" if ours == "layers_0/mlp_out/kernel" else "D"
    shape = (sizes[rows], sizes[columns])
    if ours in ("position_embedding", "segment_embedding"):
      shape = (CONFIG.max_length if ours == "position_embedding" else 2, sizes["D"])
    elif ours.endswith(("bias", "scale")):
      shape = (sizes["F"] if ours == "layers_0/mlp_in/bias" else sizes["D"],)
    weights[theirs] = random.normal(size=shape).astype(np.float32)
  safetensors_files.write(directory / "model.safetensors", weights)
  (directory / "config.json").write_text(json.dumps(bert_configs.to_json(CONFIG)))
  tokenization.WordPieceTokenizer(VOCABULARY, lower_case=False).save(directory)
  return directory


def test_the_checkpoint_is_a_pretraining_model(bert_directory, tmp_path, capsys):
  workdir = tmp_path / "run"
  import_checkpoint(source=[str(bert_directory)], workdir=str(workdir), **LENGTHS)
  printed = capsys.readouterr().out
  assert "dual_encoder/tower/projection/kernel" in printed
  assert "knowledge_augmented_encoder/mlm_dense/kernel" in printed
  assert "/bert/" not in printed.partition("drawn at random")[2]
  tokenizer = tokenization.load(workdir / "vocabulary")
  assert tokenizer.vocabulary == tuple(VOCABULARY) and not tokenizer.lower_case

  saved = saved_models.load(str(workdir / "checkpoints"))
  assert saved.step == 0
  assert saved.description.vocabulary_digest == tokenizer.digest
  mesh = partitioning.make_mesh()
  model, params = saved.pretraining_model(mesh)
  assert model.knowledge_augmented_encoder_config == CONFIG
  words = safetensors_files.read(bert_directory / "model.safetensors")[
    "embeddings.word_embeddings.weight"
  ]
  for path in (("dual_encoder", "tower"), ("knowledge_augmented_encoder",)):
    tree = params
    for key in path:
      tree = tree[key]
    np.testing.assert_array_equal(tree["bert"]["word_embedding"]["embedding"], words)
  tower, params = saved.passage_tower(mesh)
  ids = np.array([[2, 5, 6, 3, 0]], np.int32)
  tokens = datatypes.Tokens(ids=ids, mask=ids > 0, segments=ids * 0)
  embedding_NxE = tower.apply({"params": params}, tokens, deterministic=True)
  assert embedding_NxE.shape == (1, 128)
  assert np.isfinite(embedding_NxE).all()
  assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(params))


def test_the_drawn_heads_follow_the_seed(bert_directory, tmp_path):
  kernels = []
  for i, seed in enumerate((0, 0, 1)):
    workdir = tmp_path / str(i)
    import_checkpoint(source=[str(bert_directory)], workdir=str(workdir), seed=seed, **LENGTHS)
    saved = saved_models.load(str(workdir / "checkpoints"))
    kernels.append(saved.passage_tower(partitioning.make_mesh())[1]["projection"]["kernel"])
  np.testing.assert_array_equal(kernels[0], kernels[1])
  assert not np.allclose(kernels[0], kernels[2])


def test_a_workdir_is_used_once(bert_directory, tmp_path):
  workdir = str(tmp_path / "run")
  import_checkpoint(source=[str(bert_directory)], workdir=workdir, **LENGTHS)
  with pytest.raises(ValueError, match="holds a checkpoint already; choose another workdir"):
    import_checkpoint(source=[str(bert_directory)], workdir=workdir, **LENGTHS)


def test_a_source_without_vocabulary_is_refused(bert_directory, tmp_path):
  (bert_directory / "vocab.txt").unlink()
  with pytest.raises(FileNotFoundError, match=re.escape(f"no vocab.txt in {bert_directory}")):
    import_checkpoint(source=[str(bert_directory)], workdir=str(tmp_path / "run"), **LENGTHS)


def test_lengths_beyond_the_positions_are_refused(bert_directory, tmp_path):
  with pytest.raises(ValueError, match="query_length=96 is longer than the 12 positions"):
    import_checkpoint(source=[str(bert_directory)], workdir=str(tmp_path / "run"))
