"""Turns weights of BERT, Hugging Face, REALM or ORQA into a checkpoint with its vocabulary."""

import os
from collections.abc import Sequence

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
from absl import logging

from realm_jax import tokenization
from realm_jax.convert import huggingface, imported_model, vocabularies
from realm_jax.jobs import saved_models
from realm_jax.jobs.training_run import CHECKPOINTS
from realm_jax.models.dual_encoder import DualEncoder
from realm_jax.models.knowledge_augmented_encoder import KnowledgeAugmentedEncoder
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.training.checkpoints import Checkpointer

VOCABULARY = "vocabulary"


def import_checkpoint(
  *,
  source: list[str],
  workdir: str,
  vocabulary: str | None = None,
  lower_case: bool | None = None,
  retrieval: RetrievalConfig = RetrievalConfig(),
  query_length: int = 96,
  max_masks: int = 10,
  seed: int = 0,
) -> None:
  """Writes `WORKDIR/checkpoints` and `WORKDIR/vocabulary`, which other jobs begin with.

  The checkpoint holds a dual encoder, and a knowledge-augmented encoder where the source is a plain
  BERT or has one: each begins with the weights that there are. A head that the source lacks is
  drawn at random and named.

  Args:
    source: directories of Hugging Face, such as a BERT, or an embedder and an encoder of REALM.
    workdir: directory to write; must hold no checkpoint yet.
    vocabulary: directory of the vocabulary; none: the first source that has one.
    lower_case: whether the vocabulary is "uncased"; none: as declared beside it.
    retrieval: how many passages the model is to read, and how long.
    query_length: wordpieces of a query.
    max_masks: masked wordpieces predicted in a query.
    seed: of the heads that are drawn.

  Raises:
    FileNotFoundError: if weights, settings or vocabulary are missing.
    ValueError: if the weights do not fit the settings, or each other.
  """
  directory = os.path.join(workdir, CHECKPOINTS)
  with Checkpointer(directory) as checkpointer:
    if checkpointer.latest_step() is not None:
      raise ValueError(f"{directory} holds a checkpoint already; choose another workdir")
    tokenizer = _tokenizer(source if vocabulary is None else [vocabulary], lower_case=lower_case)
    model = imported_model.find([huggingface.read(path) for path in source])
    description = _describe(
      model,
      retrieval=retrieval,
      query_length=query_length,
      max_masks=max_masks,
      tokenizer=tokenizer,
    )
    params, drawn = _params(model, seed=seed)
    checkpointer.save(
      0,
      {"params": params},
      input={},
      metadata={"model": description.to_json(), "imported_from": list(source), "drawn": drawn},
    )
    checkpointer.wait()
  tokenizer.save(os.path.join(workdir, VOCABULARY))
  print(f"{workdir}: {_report(model, drawn)}, {tokenizer.vocab_size:,} wordpieces", flush=True)
  if model.unused:
    logging.info("not used: %s", ", ".join(model.unused))


def _tokenizer(
  directories: Sequence[str], *, lower_case: bool | None
) -> tokenization.WordPieceTokenizer:
  for directory in directories:
    tokenizer = vocabularies.read(directory, lower_case=lower_case)
    if tokenizer is not None:
      return tokenizer
  raise FileNotFoundError(
    f"no {tokenization.VOCABULARY_FILE} in {', '.join(directories)}; name its directory with "
    "--vocabulary"
  )


def _describe(
  model: imported_model.ImportedModel,
  *,
  retrieval: RetrievalConfig,
  query_length: int,
  max_masks: int,
  tokenizer: tokenization.WordPieceTokenizer,
) -> saved_models.ModelDescription:
  reader = model.knowledge_augmented_encoder
  encoders = {"dual_encoder": model.dual_encoder.bert}
  lengths = {
    "dual_encoder": {"query_length": query_length, "passage_length": retrieval.passage_length}
  }
  if reader is not None:
    encoders["knowledge_augmented_encoder"] = reader
    lengths["knowledge_augmented_encoder"] = {"joint_length": retrieval.joint_length}
  saved_models.check_sizes(tokenizer, encoders, lengths)
  return saved_models.ModelDescription(
    dual_encoder=model.dual_encoder,
    knowledge_augmented_encoder=reader,
    retrieval=retrieval if reader is not None else None,
    query_length=query_length,
    max_masks=max_masks if reader is not None else 0,
    passage_length=retrieval.passage_length,
    vocabulary_digest=tokenizer.digest,
    corpus_fingerprint="",
  )


def _params(model: imported_model.ImportedModel, *, seed: int) -> tuple[dict, list[str]]:
  """Returns all parameters, and the paths of those that were drawn."""

  def init() -> dict:
    tokens = saved_models.example_tokens(1, 8)
    key = jax.random.key(seed)
    params = {
      "dual_encoder": DualEncoder(model.dual_encoder).init(
        key, tokens, tokens.reshape(1, 1, 8), deterministic=True
      )
    }
    if model.knowledge_augmented_encoder is not None:
      params["knowledge_augmented_encoder"] = KnowledgeAugmentedEncoder(
        model.knowledge_augmented_encoder
      ).init(key, tokens, jnp.zeros((1, 1), jnp.int32), deterministic=True)
    trees = {name: nn.unbox(variables["params"]) for name, variables in params.items()}
    return flax.traverse_util.flatten_dict(trees, sep="/")

  shapes = {path: leaf.shape for path, leaf in jax.eval_shape(init).items()}
  params, missing = imported_model.fill(shapes, model.weights)
  if missing:
    # What is not asked for is not computed: no encoder is drawn to be thrown away.
    drawn = jax.jit(lambda: {path: value for path, value in init().items() if path in missing})()
    params |= jax.device_get(drawn)
  return flax.traverse_util.unflatten_dict(params, sep="/"), missing


def _report(model: imported_model.ImportedModel, drawn: Sequence[str]) -> str:
  names = [
    name
    for name in ("dual_encoder", "knowledge_augmented_encoder")
    if getattr(model, name) is not None
  ]
  fresh = f"drawn at random: {', '.join(drawn)}" if drawn else "nothing drawn at random"
  return f"{', '.join(names)}; {fresh}"
