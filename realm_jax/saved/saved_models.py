"""Descriptions of models in their checkpoints, so that other jobs need no configuration."""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import flax.linen as nn
import jax
import numpy as np
from absl import logging

from realm_jax import json_fields, object_store, partitioning, processes
from realm_jax.datatypes import Tokens
from realm_jax.models import bert, dual_encoder, open_qa, realm
from realm_jax.models.span_reader import SpanReaderConfig
from realm_jax.retrieval.question_retriever import BeamConfig
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.training import checkpoints
from realm_jax.wordpieces import WordPieces


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelDescription:
  """The configuration of a model, saved with its parameters.

  Attributes:
    knowledge_augmented_encoder: The encoder of query and passage; None unless pre-trained.
    retrieval: Settings of retrieval; None unless pre-trained.
    span_reader: The span reader; None unless fine-tuned for questions.
    beam: Sizes of the beam; None unless fine-tuned for questions.
    query_length: L.
    max_masks: M; 0 unless pre-trained.
    passage_length: P.
    corpus_fingerprint: Fingerprint of the passages that it was trained with.
  """

  dual_encoder: dual_encoder.DualEncoderConfig
  knowledge_augmented_encoder: bert.BertConfig | None = None
  retrieval: RetrievalConfig | None = None
  span_reader: SpanReaderConfig | None = None
  beam: BeamConfig | None = None
  query_length: int
  max_masks: int = 0
  passage_length: int
  vocabulary_digest: str
  corpus_fingerprint: str

  def mask_filling(self, source: object) -> tuple[bert.BertConfig, RetrievalConfig]:
    """Returns the configurations of the knowledge-augmented encoder and of retrieval.

    Raises:
      ValueError: If the model, named `source` in the message, was not pre-trained.
    """
    if self.knowledge_augmented_encoder is None or self.retrieval is None:
      raise ValueError(
        f"{source} has no knowledge-augmented encoder; train it with `realm pretrain`"
      )
    return self.knowledge_augmented_encoder, self.retrieval

  def question_answering(self, source: object) -> tuple[SpanReaderConfig, BeamConfig]:
    """Returns the configurations of the span reader and of the beam.

    Raises:
      ValueError: If the model, named `source` in the message, was not fine-tuned for questions.
    """
    if self.span_reader is None or self.beam is None:
      raise ValueError(f"{source} has no span reader; train it with `realm finetune`")
    return self.span_reader, self.beam

  @property
  def reading_bert(self) -> tuple[str, bert.BertConfig]:
    """Path and configuration of the BERT to start another reader of texts from."""
    if self.knowledge_augmented_encoder is not None:
      return "knowledge_augmented_encoder/bert", self.knowledge_augmented_encoder
    tower = "tower" if self.dual_encoder.towers == "shared" else "query_tower"
    return f"dual_encoder/{tower}/bert", self.dual_encoder.bert

  def check_sizes(self, vocabulary: WordPieces) -> None:
    """Checks that a vocabulary and the lengths fit the encoders; see `check_sizes`."""
    encoders = {"dual_encoder": self.dual_encoder.bert}
    lengths = {
      "dual_encoder": {"query_length": self.query_length, "passage_length": self.passage_length}
    }
    if self.knowledge_augmented_encoder is not None and self.retrieval is not None:
      encoders["knowledge_augmented_encoder"] = self.knowledge_augmented_encoder
      lengths["knowledge_augmented_encoder"] = {"joint_length": self.retrieval.joint_length}
    if self.span_reader is not None and self.beam is not None:
      encoders["span_reader"] = self.span_reader.bert
      lengths["span_reader"] = {"joint_length": self.beam.joint_length}
    check_sizes(vocabulary, encoders, lengths)
    special = {vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id}
    if words := set(self.dual_encoder.ignored_ids) - special:
      raise ValueError(
        f"ignored_ids={self.dual_encoder.ignored_ids}: {sorted(words)} are not special wordpieces "
        f"of the vocabulary, whose [MASK] is {vocabulary.mask_id}"
      )


@dataclasses.dataclass(frozen=True)
class SavedModel:
  """A checkpoint's description and path.

  Attributes:
    run: Name of its run, see `checkpoints.Run`; None if it was imported.
    drawn: Paths of the parameters that were initialised at random when it was imported.
  """

  path: object_store.Path
  step: int
  description: ModelDescription
  run: str | None = None
  drawn: tuple[str, ...] = ()

  @property
  def fills_masks(self) -> bool:
    """Whether it has a knowledge-augmented encoder that was trained to predict words."""
    reads = self.description.knowledge_augmented_encoder is not None
    return reads and not any(path.startswith("knowledge_augmented_encoder/") for path in self.drawn)

  def tower(
    self, mesh: jax.sharding.Mesh, *, of: Literal["query", "passage"]
  ) -> tuple[dual_encoder.Tower, dict]:
    """Restores the encoder of queries or of passages alone."""
    config = self.description.dual_encoder
    name = "tower" if config.towers == "shared" else f"{of}_tower"
    both = abstract_params(mesh, init_dual_encoder, dual_encoder.DualEncoder(config))
    params = checkpoints.restore_params(self.path, {"dual_encoder": {name: both[name]}})
    return dual_encoder.Tower(config), params["dual_encoder"][name]

  def pretraining_model(self, mesh: jax.sharding.Mesh) -> tuple[realm.RealmPretrainingModel, dict]:
    """Restores both encoders.

    Raises:
      ValueError: If the checkpoint has no knowledge-augmented encoder.
    """
    encoder, _ = self.description.mask_filling(self.path)
    model = realm.RealmPretrainingModel(self.description.dual_encoder, encoder)
    abstract = abstract_params(mesh, init_pretraining_model, model)
    return model, checkpoints.restore_params(self.path, abstract)

  def open_qa_model(self, mesh: jax.sharding.Mesh) -> tuple[open_qa.OpenQaModel, dict]:
    """Restores dual encoder and span reader.

    Raises:
      ValueError: If the checkpoint has no span reader.
    """
    reader, _ = self.description.question_answering(self.path)
    model = open_qa.OpenQaModel(self.description.dual_encoder, reader)
    abstract = abstract_params(mesh, init_open_qa_model, model)
    return model, checkpoints.restore_params(self.path, abstract)

  def retriever(self, mesh: jax.sharding.Mesh) -> tuple[dual_encoder.DualEncoder, dict]:
    """Restores the dual encoder, as `{"dual_encoder": ...}`."""
    module = dual_encoder.DualEncoder(self.description.dual_encoder)
    abstract = abstract_params(mesh, init_dual_encoder, module)
    return module, checkpoints.restore_params(self.path, {"dual_encoder": abstract})

  def check_vocabulary(self, digest: str, *, source: str) -> None:
    """Checks that a corpus or directory, the source, has the vocabulary of the model.

    Raises:
      ValueError: If the vocabularies differ.
    """
    if digest != self.description.vocabulary_digest:
      raise ValueError(
        f"{self.path} was trained with vocabulary {self.description.vocabulary_digest}, {source} "
        f"has {digest}; prepare the corpus with the checkpoint's vocabulary"
      )


def load(directory: str | os.PathLike, *, step: int | None = None) -> SavedModel:
  """Reads the description of a checkpoint, the newest unless a step is given.

  Raises:
    FileNotFoundError: If there is no such checkpoint.
  """
  path = checkpoints.resolve(directory, step=step)
  metadata = checkpoints.read_metadata(path)
  description = json_fields.restored(ModelDescription, metadata["model"])
  drawn = tuple(metadata.get("drawn", ()))
  return SavedModel(path, int(path.name), description, metadata.get("run"), drawn)


def init_pretraining_model(model: realm.RealmPretrainingModel, key: jax.Array) -> dict:
  """Returns the boxed parameters of both encoders."""

  def both(module, tokens, positions):
    module.dual_encoder(tokens, tokens.reshape(1, 1, 8), deterministic=True)
    module.knowledge_augmented_encoder(tokens, positions, deterministic=True)

  positions = jax.numpy.zeros((1, 1), jax.numpy.int32)
  return model.init(key, example_tokens(1, 8), positions, method=both)["params"]


def init_open_qa_model(model: open_qa.OpenQaModel, key: jax.Array) -> dict:
  """Returns the boxed parameters of dual encoder and span reader."""

  def both(module, tokens):
    module.dual_encoder(tokens, tokens.reshape(1, 1, 8), deterministic=True)
    module.span_reader(tokens, deterministic=True)

  return model.init(key, example_tokens(1, 8), method=both)["params"]


def init_dual_encoder(module: dual_encoder.DualEncoder, key: jax.Array) -> dict:
  """Returns the boxed parameters of a dual encoder."""
  tokens = example_tokens(1, 8)
  return module.init(key, tokens, tokens.reshape(1, 1, 8), deterministic=True)["params"]


def abstract_params(mesh: jax.sharding.Mesh, init: Callable[..., dict], model) -> dict:
  """Returns the shapes of what `init(model, key)` makes, with their shardings on the mesh."""
  boxed = jax.eval_shape(lambda: init(model, jax.random.key(0)))
  return jax.tree.map(
    lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
    nn.unbox(boxed),
    partitioning.tree_shardings(mesh, boxed),
  )


def example_tokens(*shape: int) -> Tokens:
  """Returns tokens for initializing parameters."""
  ids = np.ones(shape, np.int32)
  return Tokens(ids=ids, mask=ids > 0, segments=np.zeros_like(ids))


def check_sizes(
  tokenizer, encoders: Mapping[str, bert.BertConfig], lengths: Mapping[str, Mapping[str, int]]
) -> None:
  """Checks that a vocabulary and the lengths by name fit each encoder, before anything is compiled.

  Raises:
    ValueError: If a vocabulary has more wordpieces or an input more positions than the encoder has.
  """
  for name, config in encoders.items():
    if tokenizer.vocab_size > config.vocab_size:
      raise ValueError(
        f"the vocabulary has {tokenizer.vocab_size} wordpieces, but {name} has "
        f"vocab_size={config.vocab_size}; raise it or use the model's own vocabulary"
      )
    if config.vocab_size > 2 * tokenizer.vocab_size:
      logging.warning(
        "%s has vocab_size=%d, but the vocabulary only %d wordpieces: most embeddings are never "
        "used; a new model needs no more than --vocab_size=%d",
        *(name, config.vocab_size, tokenizer.vocab_size, tokenizer.vocab_size),
      )
    for setting, length in lengths[name].items():
      if length > config.max_length:
        raise ValueError(
          f"{setting}={length} exceeds the {config.max_length} positions of {name}; lower it or "
          "raise max_length"
        )


def check_warm_starts(directories: Iterable[str], vocabulary: WordPieces) -> None:
  """Checks that checkpoints were trained with a vocabulary.

  Raises:
    FileNotFoundError: If a directory has no checkpoint.
    ValueError: If one was trained with another vocabulary.
  """
  for directory in directories:
    load(directory).check_vocabulary(vocabulary.digest, source="the corpus")


def check_same_run(metadata: Mapping, description, workdir: str) -> None:
  """Checks that a checkpoint to resume matches this configuration.

  Raises:
    ValueError: If a field differs.
  """
  saved = json_fields.restored(type(description), metadata["model"])
  for field in dataclasses.fields(description):
    before, now = getattr(saved, field.name), getattr(description, field.name)
    if before != now:
      raise ValueError(
        f"{workdir} holds a run with another {field.name} ({before}, now {now}); resume it "
        "unchanged or choose another workdir"
      )


def params_digest(params) -> str:
  """Returns a digest of names and values of parameters; every process must call it."""
  digest = hashlib.sha256()
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    digest.update(jax.tree_util.keystr(path).encode())
    digest.update(np.ascontiguousarray(processes.whole(leaf)).tobytes())
  return digest.hexdigest()[:16]
