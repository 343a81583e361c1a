"""Models from elsewhere, described and complete: weights of BERT, Hugging Face, REALM or ORQA.

A released index becomes a passage store, and its embeddings generation 0.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.checkpoints import orbax_files, saved_models
from realm_jax.checkpoints.formats import (
  huggingface_files,
  imported_model,
  tensorflow_files,
  vocabularies,
)
from realm_jax.checkpoints.formats.huggingface_files import Source
from realm_jax.corpus.passage_store import (
  CORPUS,
  Passage,
  PassageStore,
  PassageStoreWriter,
  passage_uid,
)
from realm_jax.devices import directory_lock
from realm_jax.foundations import atomic_files, hub, json_fields, object_store, progress
from realm_jax.index import generations, publication
from realm_jax.index.vectors.searcher import SearcherConfig
from realm_jax.models.encoder import example_tokens
from realm_jax.models.knowledge_augmented_encoder import KnowledgeAugmentedEncoder
from realm_jax.models.open_qa import SpanReader
from realm_jax.text import tokenization, wordpieces
from realm_jax.text.tokenization import WordPieceTokenizer

_PASSAGES_AT_ONCE = 1024
_EMBEDDINGS = "block_emb"
_NUM_QUERIES = 512  # passages used as queries to measure the index


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prompts:
  """Texts that precede every query and passage of a sentence encoder.

  Attributes:
    query_prompt: Such as "query: " for E5; None uses what the encoder declares.
    passage_prompt: The same for passages.
  """

  query_prompt: str | None = None
  passage_prompt: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReleasedCorpus:
  """Files of a released index's passages.

  Attributes:
    blocks: Records of their texts, `blocks.tfr`.
    titles: Records of their titles, `titles.tfr`; None for no titles.
    embeddings: `encoded.ckpt` or a `.npy` file of their embeddings; None uses those of a source
      (`encoded/encoded.ckpt` or `block_emb`).
  """

  blocks: str | None = None
  titles: str | None = None
  embeddings: str | None = None


def read_source(path: str) -> Source:
  """Reads the weights of a Hugging Face model, a TF-Hub module or a TensorFlow checkpoint."""
  if tensorflow_files.is_checkpoint(path):
    return tensorflow_files.read(path)
  path = hub.fetch(path).directory
  if not object_store.absolute(path).exists():
    raise FileNotFoundError(f"no {path}; download the weights and give their directory")
  with json_fields.named(path):
    return huggingface_files.read(path)


def read_tokenizer(
  sources: Sequence[Source],
  *,
  vocabulary: str | None = None,
  lower_case: bool | None = None,
) -> WordPieceTokenizer:
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
      return WordPieceTokenizer(
        tokenizer.vocabulary, lower_case=True, strip_accents=tokenizer.strip_accents
      )
    return tokenizer
  raise FileNotFoundError(
    f"no {tokenization.VOCABULARY_FILE} in {', '.join(directories)}; name its directory with "
    "--vocabulary"
  )


def with_prompts(
  model: imported_model.ImportedModel,
  sources: Sequence[Source],
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
  positions = model.dual_encoder.bert.max_length
  for name, ids in prompts.items():
    if len(ids) > positions // 2:
      raise ValueError(
        f"{name} has {len(ids)} wordpieces, more than half of the model's {positions} positions"
      )
  dual_encoder = dataclasses.replace(model.dual_encoder, **prompts)
  return dataclasses.replace(model, dual_encoder=dual_encoder)


def lengths(
  model: imported_model.ImportedModel,
  sources: Sequence[Source],
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


def write_store(
  directory: str,
  *,
  blocks: str,
  titles: str | None,
  tokenizer: WordPieceTokenizer,
  passage_length: int,
) -> PassageStore:
  """Writes the passage store of released texts, row i from record i; the titles may be missing."""
  texts = tensorflow_files.read_records(blocks)
  names = itertools.repeat(b"") if titles is None else tensorflow_files.read_records(titles)
  with atomic_files.new_directory(directory, kind=CORPUS) as unfinished:
    writer = PassageStoreWriter(unfinished, tokenizer=tokenizer, max_passage_length=passage_length)
    pairs = _pairs(texts, names, many=titles is not None)
    for batch in progress.track(_batches(pairs), what="passages", size=len):
      _append(writer, batch, tokenizer)
    metadata = writer.finish(counts={})
    if not metadata.num_passages:
      raise ValueError(f"no text in {blocks}")
    tokenizer.save(os.path.join(unfinished, "vocabulary"))
  return PassageStore(directory)


def publish_embeddings(
  index: str,
  embeddings_NxE: np.ndarray,
  *,
  store: PassageStore,
  embedding_size: int,
  searcher: SearcherConfig,
  parameters_digest: str,
) -> None:
  """Publishes released embeddings, a row for each passage, as generation 0 of a new index.

  Raises:
    ValueError: If the embeddings do not fit the passages or the model.
  """
  if embeddings_NxE.shape != (len(store), embedding_size):
    raise ValueError(
      f"embeddings {embeddings_NxE.shape} for {len(store)} passages and a model of width "
      f"{embedding_size}; give the blocks that the embeddings were made from"
    )
  embeddings_NxE = np.asarray(embeddings_NxE, np.float32)
  sample = np.random.default_rng(0).permutation(len(store))[:_NUM_QUERIES]
  with directory_lock.hold(index, kind=generations.INDEX):
    publication.check_corpus(index, store)
    publication.publish(
      index,
      embeddings_NxE,
      store=store,
      config=searcher.for_corpus(len(store)),
      queries=lambda: embeddings_NxE[sample],
      training_step=0,
      parameters_digest=parameters_digest,
      keep=1,
    )


def _pairs(texts: Iterable[bytes], titles: Iterable[bytes], *, many: bool):
  titles = iter(titles)
  count = 0
  for count, text in enumerate(texts, start=1):
    title = next(titles, None)
    if title is None:
      raise ValueError(f"text {count} has no title; give the two files of one release")
    yield title.decode(), text.decode()
  if many and next(titles, None) is not None:
    raise ValueError(f"more titles than the {count} texts; give the two files of one release")


def _batches(items: Iterable) -> Iterator[list]:
  items = iter(items)
  while batch := list(itertools.islice(items, _PASSAGES_AT_ONCE)):
    yield batch


def _append(writer: PassageStoreWriter, batch, tokenizer: WordPieceTokenizer) -> None:
  titles, texts = zip(*batch, strict=True)
  ids = zip(tokenizer.encode_batch(titles), tokenizer.encode_batch(texts), strict=True)
  for title, text, (title_ids, body_ids) in zip(titles, texts, ids, strict=True):
    writer.append(
      Passage(
        title=title, text=text, title_ids=title_ids, body_ids=body_ids, uid=passage_uid(title, text)
      )
    )


def check_positions(model: imported_model.ImportedModel, lengths: Mapping[str, int]) -> None:
  """Checks that a model has positions for queries, passages and both together.

  Raises:
    ValueError: If it has not; the message has lengths that it has positions for.
  """
  encoder = model.dual_encoder
  positions = encoder.bert.max_length
  room = {
    "query_length": positions - len(encoder.query_prompt),
    "passage_length": positions - len(encoder.passage_prompt),
    "joint_length": positions,
  }
  if too_long := [f"{name}={lengths[name]}" for name in room if lengths[name] > room[name]]:
    # A query takes half, so that a passage fits next to it.
    fitting = room | {"query_length": min(room["query_length"], positions // 2)}
    flags = [f"--{n}={fitting[n]}" for n in room if lengths[n] > fitting[n]]
    raise ValueError(
      f"the model has {positions} positions, fewer than {', '.join(too_long)}; give "
      f"{' '.join(flags)}, or less"
    )


def released_embeddings(path: str | None, sources: Sequence[Source]) -> np.ndarray | None:
  """Returns the embeddings of a released index: of a file, or else of a source that has some."""
  if path is not None:
    if path.endswith(".npy"):
      return np.load(path, mmap_mode="r", allow_pickle=False)
    return tensorflow_files.read_matrix(path, _EMBEDDINGS)
  for source in sources:
    if _EMBEDDINGS in source.weights:
      return source.weights[_EMBEDDINGS]
    encoded = os.path.join(source.name, "encoded")
    if tensorflow_files.is_checkpoint(encoded):
      return tensorflow_files.read_matrix(encoded, _EMBEDDINGS)
  return None
