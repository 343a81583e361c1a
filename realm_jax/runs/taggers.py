"""Taggers: their configuration, their description in checkpoints, and tagging words."""

import dataclasses
import functools
import os
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from realm_jax.data.word_tagging import tag_words
from realm_jax.devices import partitioning
from realm_jax.foundations import choices, json_fields
from realm_jax.models.encoder import example_tokens
from realm_jax.models.token_tagger import TokenTagger, TokenTaggerConfig
from realm_jax.objectives.token_classification import Tags
from realm_jax.runs.training_config import RunConfig, TrainingConfig
from realm_jax.runs.training_run import CHECKPOINTS
from realm_jax.saved import saved_models
from realm_jax.text import tokenization
from realm_jax.text.tokenization import WordPieceTokenizer
from realm_jax.training import checkpoints
from realm_jax.training.objective import Objective
from realm_jax.training.optimizer import OptimizerConfig
from realm_jax.training.train_program import TrainProgram

VOCABULARY = "vocabulary"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggerDescription:
  """The configuration of a tagger, saved with its parameters; tags in the order of their ids."""

  tagger: TokenTaggerConfig
  tags: tuple[str, ...]
  vocabulary_digest: str

  @property
  def labels(self) -> tuple[str, ...]:
    """Labels of the entities, in the order of the tags."""
    return tuple(dict.fromkeys(tag[2:] for tag in self.tags if len(tag) > 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggerTraining(TrainingConfig):
  """The configuration of a tagger's training, except for its directories.

  Attributes:
    batch_size: Sentences per step.
    buckets: Lengths that batches are padded to, ascending; a sentence longer than the last one is
      truncated in training, never in evaluation.
    dropout_rate: Dropout rate before the classifier.
    eval_every: Steps between evaluations.
    tokens_per_batch: Padded wordpieces per batch in evaluation.
  """

  run: RunConfig = RunConfig(num_steps=1000, log_every=50, checkpoint_every=500, keep_checkpoints=2)
  optimizer: OptimizerConfig = OptimizerConfig(name="adamw")
  batch_size: int = 32
  buckets: tuple[int, ...] = (32, 64, 128)
  dropout_rate: float = 0.1
  eval_every: int = 500
  tokens_per_batch: int = 4096
  objective: Objective = Tags()

  def __post_init__(self):
    choices.check_counts(self, "batch_size", "eval_every", "tokens_per_batch")
    if list(self.buckets) != sorted(set(self.buckets)) or not self.buckets:
      raise ValueError(f"buckets={list(self.buckets)}; give at least one, in ascending order")

  def program(self, config: TokenTaggerConfig) -> TrainProgram:
    """Returns the train step and the layout of the train state."""
    model = TokenTagger(config)

    init = functools.partial(init_params, config)
    return self.make_program(self.objective.build(model), init_params=init)


class WordTagger:
  """Tags the words of sentences with any parameters of one model, over the mesh."""

  def __init__(
    self,
    description: TaggerDescription,
    *,
    tokenizer: WordPieceTokenizer,
    mesh: jax.sharding.Mesh,
    tokens_per_batch: int,
  ):
    self._description = description
    self._tokenizer = tokenizer
    self._tokens_per_batch = tokens_per_batch
    self._multiple_of = mesh.shape["data"]
    self._sharding = partitioning.batch_sharding(mesh)
    model = TokenTagger(description.tagger)

    def predict(params, tokens):
      logits_BxLxY = model.apply({"params": params}, tokens, deterministic=True)
      return jnp.argmax(logits_BxLxY, axis=-1)

    self._predict = jax.jit(predict)

  def tag(self, params: dict, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
    """Returns the tags of the words of each sentence."""
    tag_ids = tag_words(
      sentences,
      tokenizer=self._tokenizer,
      predict=lambda tokens: self._predict(params, jax.device_put(tokens, self._sharding)),
      max_length=self._description.tagger.bert.max_length,
      tokens_per_batch=self._tokens_per_batch,
      multiple_of=self._multiple_of,
    )
    return [[self._description.tags[i] for i in sentence] for sentence in tag_ids]


@dataclasses.dataclass(frozen=True)
class SavedTagger:
  """A tagger restored from its working directory, with its parameters on the mesh."""

  description: TaggerDescription
  step: int
  params: dict
  tokenizer: WordPieceTokenizer


def load(workdir: str, *, mesh: jax.sharding.Mesh, step: int | None = None) -> SavedTagger:
  """Restores a tagger from the newest checkpoint, unless a step is given.

  Raises:
    FileNotFoundError: If there is no checkpoint.
    ValueError: If the checkpoint is not a tagger's, or the vocabulary is another tagger's.
  """
  path = checkpoints.resolve(os.path.join(workdir, CHECKPOINTS), step=step)
  content = checkpoints.read_metadata(path)["model"]
  if "tagger" not in content:
    raise ValueError(f"{path} holds no tagger; train one with `realm train_tagger`")
  description = json_fields.restored(TaggerDescription, content)
  tokenizer = tokenization.load(os.path.join(workdir, VOCABULARY))
  if tokenizer.digest != description.vocabulary_digest:
    raise ValueError(
      f"{workdir} has vocabulary {tokenizer.digest}, but its tagger was trained with "
      f"{description.vocabulary_digest}; restore the right one"
    )
  abstract = saved_models.abstract_params(mesh, init_params, description.tagger)
  params = checkpoints.restore_params(path, abstract)
  return SavedTagger(description, int(path.name), params, tokenizer)


def check_one_process() -> None:
  """Checks that one process has all devices.

  Raises:
    ValueError: If several processes have joined.
  """
  if jax.process_count() > 1:
    raise ValueError(
      f"{jax.process_count()} processes have joined; a tagger runs in one, on all its devices"
    )


def init_params(config: TokenTaggerConfig, key: jax.Array) -> dict:
  """Returns the boxed parameters of a tagger."""
  tokens = example_tokens(1, 8)
  return TokenTagger(config).init(key, tokens, deterministic=True)["params"]
