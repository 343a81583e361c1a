"""Descriptions of models in their checkpoints, so that other jobs need no configuration."""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Mapping

import flax.linen as nn
import jax
import numpy as np

from realm_jax.checkpoints import orbax_files
from realm_jax.devices import partitioning, processes
from realm_jax.foundations import json_fields, object_store
from realm_jax.models import bert, open_qa, realm
from realm_jax.models.encoder import Encoder, EncoderConfig, Side, example_tokens
from realm_jax.models.open_qa import SpanReaderConfig
from realm_jax.retrieval.question_retriever import BeamConfig
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.text.wordpieces import WordPieces


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelDescription:
  """The configuration of a model, saved with its parameters.

  Attributes:
    dual_encoder: The encoder of queries and passages.
    knowledge_augmented_encoder: The encoder of query and passage; None unless pre-trained.
    retrieval: Settings of retrieval; None unless pre-trained.
    span_reader: The span reader; None unless fine-tuned for questions.
    beam: Sizes of the beam; None unless fine-tuned for questions.
    query_length: L.
    max_masks: M; 0 unless pre-trained.
    passage_length: P.
    corpus_fingerprint: Fingerprint of the passages that it was trained with.
  """

  dual_encoder: EncoderConfig
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
    """Returns the configurations of the knowledge-augmented encoder and of retrieval."""
    if self.knowledge_augmented_encoder is None or self.retrieval is None:
      raise ValueError(
        f"{source} has no knowledge-augmented encoder; train it with `realm pretrain`"
      )
    return self.knowledge_augmented_encoder, self.retrieval

  def question_answering(self, source: object) -> tuple[SpanReaderConfig, BeamConfig]:
    """Returns the configurations of the span reader and of the beam."""
    if self.span_reader is None or self.beam is None:
      raise ValueError(f"{source} has no span reader; train it with `realm finetune`")
    return self.span_reader, self.beam

  @property
  def reading_bert(self) -> tuple[str, bert.BertConfig] | None:
    """Path and configuration of the BERT to start another reader of texts from; None if none."""
    if self.knowledge_augmented_encoder is not None:
      return "knowledge_augmented_encoder/bert", self.knowledge_augmented_encoder
    if (found := self.dual_encoder.reading_bert) is None:
      return None
    return f"dual_encoder/{found[0]}", found[1]

  def check_sizes(self, vocabulary: WordPieces) -> None:
    """Checks that a vocabulary and the lengths fit the encoders."""
    self.dual_encoder.check(
      vocabulary, query_length=self.query_length, passage_length=self.passage_length
    )
    size = vocabulary.vocab_size
    if (reader := self.knowledge_augmented_encoder) is not None and self.retrieval is not None:
      length = self.retrieval.joint_length
      reader.check(size, name="knowledge_augmented_encoder", joint_length=length)
    if self.span_reader is not None and self.beam is not None:
      length = self.beam.joint_length
      self.span_reader.bert.check(size, name="span_reader", joint_length=length)


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

  def tower(self, mesh: jax.sharding.Mesh, *, of: Side) -> tuple[Encoder, dict]:
    """Restores what encodes queries or passages alone."""
    config = self.description.dual_encoder
    abstract = abstract_params(mesh, init_dual_encoder, config.make())
    wanted = {"dual_encoder": config.params_of(of, abstract)}
    return config.make(), orbax_files.restore_params(self.path, wanted)["dual_encoder"]

  def pretraining_model(self, mesh: jax.sharding.Mesh) -> tuple[realm.RealmPretrainingModel, dict]:
    """Restores both encoders."""
    encoder, _ = self.description.mask_filling(self.path)
    model = realm.RealmPretrainingModel(self.description.dual_encoder, encoder)
    abstract = abstract_params(mesh, init_pretraining_model, model)
    return model, orbax_files.restore_params(self.path, abstract)

  def open_qa_model(self, mesh: jax.sharding.Mesh) -> tuple[open_qa.OpenQaModel, dict]:
    """Restores dual encoder and span reader."""
    reader, _ = self.description.question_answering(self.path)
    model = open_qa.OpenQaModel(self.description.dual_encoder, reader)
    abstract = abstract_params(mesh, init_open_qa_model, model)
    # An encoder without parameters has no entry.
    return model, {"dual_encoder": {}, **orbax_files.restore_params(self.path, abstract)}

  def retriever(self, mesh: jax.sharding.Mesh) -> tuple[Encoder, dict]:
    """Restores the dual encoder, as `{"dual_encoder": ...}`."""
    module = self.description.dual_encoder.make()
    abstract = abstract_params(mesh, init_dual_encoder, module)
    return module, orbax_files.restore_params(self.path, {"dual_encoder": abstract})

  def check_vocabulary(self, digest: str, *, source: str) -> None:
    """Checks that a corpus or directory, the source, has the vocabulary of the model."""
    if digest != self.description.vocabulary_digest:
      raise ValueError(
        f"{self.path} was trained with vocabulary {self.description.vocabulary_digest}, {source} "
        f"has {digest}; prepare the corpus with the checkpoint's vocabulary"
      )


def load(directory: str | os.PathLike, *, step: int | None = None) -> SavedModel:
  """Reads the description of a checkpoint, the newest unless a step is given."""
  path = orbax_files.resolve(directory, step=step)
  metadata = orbax_files.read_metadata(path)
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


def init_dual_encoder(module: Encoder, key: jax.Array) -> dict:
  """Returns the boxed parameters of a dual encoder."""
  tokens = example_tokens(1, 8)
  return module.init(key, tokens, tokens.reshape(1, 1, 8), deterministic=True)["params"]


def abstract_params(mesh: jax.sharding.Mesh, init: Callable[..., dict], model) -> dict:
  """Returns the shapes of what `init(model, key)` makes, with their shardings on the mesh."""
  boxed = _boxed_shapes(init, model)
  return jax.tree.map(
    lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
    nn.unbox(boxed),
    partitioning.tree_shardings(mesh, boxed),
  )


@functools.cache
def _boxed_shapes(init: Callable[..., dict], model) -> dict:
  """Traces each model once, however many of its checkpoints are opened."""
  return jax.eval_shape(lambda: init(model, jax.random.key(0)))


def check_same_run(metadata: Mapping, description, workdir: str) -> None:
  """Checks that a checkpoint to resume matches this configuration."""
  saved = json_fields.restored(type(description), metadata["model"])
  for field in dataclasses.fields(description):
    before, now = getattr(saved, field.name), getattr(description, field.name)
    if before != now:
      raise ValueError(
        f"{workdir} holds a run with another {field.name} ({before}, now {now}); resume it "
        "unchanged or choose another workdir"
      )


def passages_digest(config: EncoderConfig, params: Mapping) -> str:
  """Returns the digest of those parameters of an encoder that passages are embedded with.

  The names of its parts do not count: fine-tuning copies a shared tower under another name.
  """
  parts = config.params_of("passage", params)
  if prompt := getattr(config, "passage_prompt", ()):
    parts["prompt"] = {"ids": np.array(prompt)}
  return params_digest(parts, unnamed=1)


def params_digest(params, *, unnamed: int = 0) -> str:
  """Returns a digest of names and values of parameters; every process must call it.

  Args:
    unnamed: Number of levels of the tree that are left out of names.
  """
  digest = hashlib.sha256()
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    digest.update(jax.tree_util.keystr(path[unnamed:]).encode())
    digest.update(np.ascontiguousarray(processes.whole(leaf)).tobytes())
  return digest.hexdigest()[:16]
