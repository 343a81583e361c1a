import dataclasses
import json
import pathlib
import re
import types
from typing import cast

import jax
import numpy as np
import pytest
import tensorflow as tf

from realm_jax.answering import open_answerer
from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.formats import huggingface_files, huggingface_names
from realm_jax.checkpoints.importing import ReleasedCorpus
from realm_jax.checkpoints.opening import Opened, Sources
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices import datatypes, partitioning
from realm_jax.index import generations
from realm_jax.jobs.answering.ask import ask
from realm_jax.jobs.preparation.import_checkpoint import import_checkpoint
from realm_jax.retrieval.question_retriever import BeamConfig
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.text import tokenization
from tests.configurations import tiny_bert

CONFIG = tiny_bert(vocab_size=8, hidden_size=4, mlp_size=6)
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
  names = huggingface_names.encoder(1) | huggingface_names.POOLER
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
  huggingface_files.write_weights(directory, weights)
  (directory / "config.json").write_text(json.dumps(huggingface_names.config_to_json(CONFIG)))
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
  imported = dataclasses.replace(CONFIG, dtype="auto")  # which the files do not say
  assert model.knowledge_augmented_encoder_config == imported
  words = huggingface_files.read_weights(bert_directory)["embeddings.word_embeddings.weight"]
  for path in (("dual_encoder", "tower"), ("knowledge_augmented_encoder",)):
    tree = params
    for key in path:
      tree = tree[key]
    np.testing.assert_array_equal(tree["bert"]["word_embedding"]["embedding"], words)
  tower, params = saved.tower(mesh, of="passage")
  ids = np.array([[2, 5, 6, 3, 0]], np.int32)
  tokens = datatypes.Tokens(ids=ids, mask=ids > 0, segments=ids * 0)
  embedding_NxE = jax.jit(tower.apply, static_argnames=("deterministic", "method"))(
    {"params": params}, tokens, deterministic=True, method="encode_passage"
  )
  assert embedding_NxE.shape == (1, 128)
  assert np.isfinite(embedding_NxE).all()
  assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(params))


def test_a_head_drawn_at_random_fills_no_masks(bert_directory, tmp_path):
  import_checkpoint(source=[str(bert_directory)], workdir=str(tmp_path / "run"), **LENGTHS)
  saved = saved_models.load(str(tmp_path / "run" / "checkpoints"))
  assert saved.description.knowledge_augmented_encoder is not None and not saved.fills_masks
  with pytest.raises(ValueError, match="imported without a head that predicts words"):
    open_answerer.mask_filler(cast(Opened, types.SimpleNamespace(saved=saved)))
  trained = dataclasses.replace(saved, drawn=("dual_encoder/tower/projection/kernel",))
  assert trained.fills_masks


def test_what_cannot_be_imported_is_refused(bert_directory, tmp_path):
  workdir = str(tmp_path / "run")
  message = (
    "the model has 12 positions, fewer than query_length=96, passage_length=288, joint_length=384; "
    "give --query_length=6 --passage_length=12 --joint_length=12, or less"
  )
  with pytest.raises(ValueError, match=message):
    import_checkpoint(source=[str(bert_directory)], workdir=workdir)
  import_checkpoint(source=[str(bert_directory)], workdir=workdir, **LENGTHS)
  with pytest.raises(ValueError, match="already has a checkpoint; choose another workdir"):
    import_checkpoint(source=[str(bert_directory)], workdir=workdir, **LENGTHS)
  (bert_directory / "vocab.txt").unlink()
  with pytest.raises(FileNotFoundError, match=re.escape(f"no vocab.txt in {bert_directory}")):
    import_checkpoint(source=[str(bert_directory)], workdir=str(tmp_path / "new"), **LENGTHS)


REALM = pathlib.Path(__file__).parent.parent / "testdata" / "realm"
WORDS = [*tokenization.SPECIAL_TOKENS, *"abcdefghijklmnopqrstuvwxy"]  # the 30 of the golden models
TEXTS = ["a b c d", "e f g", "h i", "j k l m n", "o p", "q r s", "t u v w x y"]
RELEASED = {
  "retrieval": RetrievalConfig(num_passages=2, passage_length=12, joint_length=16),
  "beam": BeamConfig(beam_size=5, num_read=3, joint_length=16),
  "query_length": 8,
}


@pytest.fixture
def released(tmp_path):
  """Directories of vocabulary and blocks for the golden `RealmForOpenQA`."""
  tokenization.WordPieceTokenizer(WORDS).save(tmp_path / "vocabulary")
  for name, records in (("blocks", TEXTS), ("titles", ["a"] * len(TEXTS))):
    with tf.io.TFRecordWriter(str(tmp_path / f"{name}.tfr")) as writer:
      for record in records:
        writer.write(record.encode())
  return tmp_path


def import_released(directory, **places):
  import_checkpoint(
    source=[str(REALM / "open_qa")],
    workdir=str(directory / "run"),
    vocabulary=str(directory / "vocabulary"),
    released=ReleasedCorpus(blocks=str(directory / "blocks.tfr"), **places),
    **RELEASED,
  )
  return directory / "run"


def test_from_a_released_model_to_an_answered_question(released, caplog):
  workdir = import_released(released, titles=str(released / "titles.tfr"))
  store = PassageStore(workdir / "passages")
  assert [store.text(i) for i in range(len(store))] == TEXTS
  assert store.title(3) == "a"
  manifest = generations.read_manifest(str(workdir / "index"), 0)
  assert manifest.corpus_fingerprint == store.fingerprint and manifest.training_step == 0
  (shard,) = [generations.restore(str(workdir / "index"), 0, 0)]
  weights = huggingface_files.read(str(REALM / "open_qa")).weights
  np.testing.assert_array_equal(shard["embeddings"], weights["block_emb"])
  answered = ask(
    "b c e",
    sources=Sources(
      checkpoints=str(workdir / "checkpoints"),
      passages=str(workdir / "passages"),
      index=str(workdir / "index"),
    ),
  )
  assert "embedded by" not in caplog.text
  answer = answered["answer"]
  assert answer and any(answer in text for text in TEXTS)


def test_embeddings_of_another_corpus_are_refused(released):
  with tf.io.TFRecordWriter(str(released / "blocks.tfr")) as writer:
    writer.write(b"a b")
  message = r"embeddings \(7, 6\) for 1 passages and a model of width 6; give the blocks"
  with pytest.raises(ValueError, match=message):
    import_released(released)
  assert not (released / "run" / "checkpoints").exists()


def test_embeddings_may_come_from_a_file_of_their_own(released):
  embeddings_NxE = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)
  np.save(released / "other.npy", embeddings_NxE)
  workdir = import_released(released, embeddings=str(released / "other.npy"))
  shard = generations.restore(str(workdir / "index"), 0, 0)
  np.testing.assert_array_equal(shard["embeddings"], embeddings_NxE)
  assert PassageStore(workdir / "passages").title(0) == ""
