"""Models from elsewhere: weights of BERT, Hugging Face, REALM or ORQA, described and complete."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.checkpoints import orbax_files, saved_models
from realm_jax.checkpoints.formats import (
  huggingface_export,
  imported_model,
  tensorflow_files,
  vocabularies,
)
from realm_jax.foundations import hub, json_fields, object_store
from realm_jax.models.encoder import example_tokens
from realm_jax.models.knowledge_augmented_encoder import KnowledgeAugmentedEncoder
from realm_jax.models.open_qa import SpanReader
from realm_jax.text import tokenization, wordpieces


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prompts:
  """Texts that precede every query and passage of a sentence encoder.

  Attributes:
    query_prompt: Such as "query: " for E5; None uses what the encoder declares.
    passage_prompt: The same for passages.
  """

  query_prompt: str | None = None
  passage_prompt: str | None = None


def read_source(path: str) -> imported_model.Source:
  """Reads the weights of a Hugging Face model, a TF-Hub module or a TensorFlow checkpoint."""
  if tensorflow_files.is_checkpoint(path):
    return tensorflow_files.read(path)
  path = hub.fetch(path).directory
  if not object_store.absolute(path).exists():
    raise FileNotFoundError(f"no {path}; download the weights and give their directory")
  return huggingface_export.read(path)


def read_tokenizer(
  sources: Sequence[imported_model.Source],
  *,
  vocabulary: str | None = None,
  lower_case: bool | None = None,
) -> tokenization.WordPieceTokenizer:
  """Returns the vocabulary of the first source that has one.

  Args:
    sources: The models; how a sentence encoder treats case is read from them, too.
    vocabulary: Another directory, to read it from instead.
    lower_case: Whether it is "uncased"; None uses what the directory declares.
  """
  encoders = [source.sentence_encoder for source in sources if source.sentence_encoder is not None]
  directories = [vocabulary] if vocabulary is not None else [s.tokenizer for s in sources]
  for directory in directories:
    declared = tensorflow_files.lower_case(directory) if lower_case is None else lower_case
    tokenizer = vocabularies.read(directory, lower_case=declared)
    if tokenizer is None:
      continue
    if lower_case is None and any(encoder.lower_case for encoder in encoders):
      return tokenization.WordPieceTokenizer(
        tokenizer.vocabulary, lower_case=True, strip_accents=tokenizer.strip_accents
      )
    return tokenizer
  raise FileNotFoundError(
    f"no {tokenization.VOCABULARY_FILE} in {', '.join(directories)}; name its directory with "
    "--vocabulary"
  )


def with_prompts(
  model: imported_model.ImportedModel,
  sources: Sequence[imported_model.Source],
  tokenizer: wordpieces.Tokenizer,
  given: Prompts = Prompts(),
) -> imported_model.ImportedModel:
  """Returns a model with the prompts that were given or declared in its dual encoder."""
  declared = {}
  for source in sources:
    if source.sentence_encoder is not None:
      declared |= source.sentence_encoder.prompts
  texts = {**declared, **{k: v for k, v in vars(given).items() if v is not None}}
  prompts = {name: tuple(map(int, tokenizer.encode(text))) for name, text in texts.items()}
  dual_encoder = dataclasses.replace(model.dual_encoder, **prompts)
  return dataclasses.replace(model, dual_encoder=dual_encoder)


def lengths(
  model: imported_model.ImportedModel,
  sources: Sequence[imported_model.Source],
  *,
  default: Mapping[str, int],
) -> dict[str, int]:
  """Returns the `query_length` and `passage_length` of a model, in wordpieces.

  A sentence encoder reads as much of a text with its prompt as it declares, or has positions for.

  Args:
    default: The lengths of a model that declares none.
  """
  encoder = model.dual_encoder
  declared = [s.sentence_encoder.max_length for s in sources if s.sentence_encoder is not None]
  if not declared:
    return dict(default)
  most = min(encoder.bert.max_length, *(length or encoder.bert.max_length for length in declared))
  prompts = {"query_length": encoder.query_prompt, "passage_length": encoder.passage_prompt}
  return {name: most - len(prompt) for name, prompt in prompts.items()}


def imported_params(model: imported_model.ImportedModel, *, seed: int) -> tuple[dict, list[str]]:
  """Returns all parameters, and the paths of those that were initialised at random."""

  def init() -> dict:
    tokens = example_tokens(1, 8)
    key = jax.random.key(seed)
    params = {"dual_encoder": saved_models.init_dual_encoder(model.dual_encoder.make(), key)}
    if model.knowledge_augmented_encoder is not None:
      reader = KnowledgeAugmentedEncoder(model.knowledge_augmented_encoder)
      variables = reader.init(key, tokens, jnp.zeros((1, 1), jnp.int32), deterministic=True)
      params["knowledge_augmented_encoder"] = variables["params"]
    if model.span_reader is not None:
      variables = SpanReader(model.span_reader).init(key, tokens, deterministic=True)
      params["span_reader"] = variables["params"]
    return flax.traverse_util.flatten_dict(nn.unbox(params), sep="/")

  shapes = {path: leaf.shape for path, leaf in jax.eval_shape(init).items()}
  params, missing = imported_model.fill(shapes, model.weights)
  if missing:
    # XLA omits unused outputs, so no encoder is initialised only to be thrown away.
    drawn = jax.jit(lambda: {path: value for path, value in init().items() if path in missing})()
    params |= jax.device_get(drawn)
  return flax.traverse_util.unflatten_dict(params, sep="/"), missing


def write(
  directory: str | os.PathLike,
  description: saved_models.ModelDescription,
  params: dict[str, dict[str, np.ndarray]],
  **metadata,
) -> None:
  """Writes parameters as the only checkpoint of a directory, with their description."""
  with orbax_files.Checkpointer(directory) as checkpointer:
    checkpointer.save(
      0,
      {"params": params},
      input={},
      metadata={"model": json_fields.as_json(description), **metadata},
    )
    checkpointer.wait()
