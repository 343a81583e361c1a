"""Finds the networks in an imported checkpoint and maps their weights to our names.

Weights arrive under Hugging Face's names. A network is identified by its heads: a span scorer makes
it a reader, a projection makes it a tower of a dual encoder, anything else is a BERT.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from realm_jax.checkpoints.formats import huggingface_names
from realm_jax.checkpoints.formats.huggingface_files import LAYER_NORM_EPSILON, Source
from realm_jax.checkpoints.formats.huggingface_names import (
  LINEAR_SPANS,
  MASKED_LM,
  POOLER,
  PROJECTION,
  SPANS,
)
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.open_qa import SpanReaderConfig

_WORDS = "embeddings.word_embeddings.weight"
_POSITIONS = "embeddings.position_embeddings.weight"
_SPANS = "qa_outputs.dense_intermediate.weight"
_LINEAR_SPANS = "qa_outputs.weight"
_LINEAR_SPAN_WIDTH = 30  # with which BERT answered SQuAD
_PROJECTION = "cls.dense.weight"
# Indices, tied copies of the masked-LM head, the next-sentence head, embeddings of passages.
_KNOWN_REST = re.compile(
  r"(^|\.)(position_ids|token_type_ids|cls\.predictions\.decoder\.(weight|bias)|cls\.seq_relationship\..*|block_emb)$"
)
_STEM = re.compile(r"(^|\.)(bert|realm|electra|ernie|roberta)\.$")  # below the heads' prefix
_DEFAULT_PROJECTION = 128
_NAMED = 5  # weights, in a message
_EMBEDDER = (POOLER, PROJECTION)
Heads = Sequence[Mapping[str, str]]  # the names of their parameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImportedModel:
  """Networks and their weights.

  Attributes:
    dual_encoder: Always present; without a tower in the sources it starts from another BERT.
    knowledge_augmented_encoder: None unless there is a plain BERT.
    span_reader: None unless there is a reader.
    weights: Arrays by our paths, in Hugging Face's shapes.
    unused: Names in the sources that no parameter of ours uses.
  """

  dual_encoder: DualEncoderConfig
  knowledge_augmented_encoder: BertConfig | None
  span_reader: SpanReaderConfig | None
  weights: Mapping[str, np.ndarray]
  unused: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Network:
  """A BERT and its heads; `owner` is the prefix of the heads, `stem` that of the BERT."""

  source: Source
  stem: str
  config: BertConfig

  @property
  def owner(self) -> str:
    return _STEM.sub(r"\1", self.stem)

  @property
  def kind(self) -> str:
    if any(self.owner + name in self.source.weights for name in (_SPANS, _LINEAR_SPANS)):
      return "span_reader"
    embeds = self.owner + _PROJECTION in self.source.weights
    return "tower" if embeds or self.source.sentence_encoder else "bert"

  def check(self) -> None:
    """Checks that the encoder has no weights that BERT has not."""
    if self.config.num_layers > len(self.source.weights):
      raise ValueError(
        f"{self.source.name}: num_hidden_layers={self.config.num_layers} in config.json, but there "
        f"are {len(self.source.weights)} weights"
      )
    known = set(self.names("", heads=[POOLER]).values())
    parts = (self.stem,) if self.stem else ("embeddings.", "encoder.")
    foreign = [
      name
      for name in sorted(self.source.weights)
      if name.startswith(parts) and name not in known and not _KNOWN_REST.search(name)
    ]
    if foreign:
      more = ", ..." if len(foreign) > _NAMED else ""
      raise ValueError(
        f"{self.source.name}: {len(foreign)} weights of its encoder belong to no BERT, so it "
        f"computes something else: {', '.join(foreign[:_NAMED])}{more}"
      )

  def names(self, here: str, *, heads: Heads) -> dict[str, str]:
    """Returns the names of this BERT and some heads under one of our paths."""
    prefixed = huggingface_names.prefixed
    names = prefixed(
      huggingface_names.encoder(self.config.num_layers), here=f"{here}/bert/", there=self.stem
    )
    for head in heads:
      there = self.stem if head is POOLER else self.owner
      names |= prefixed(head, here=f"{here}/", there=there)
    return names


def find(sources: Sequence[Source]) -> ImportedModel:
  """Returns the networks of all sources.

  Of two embedders, the one called "query_embedder", or else the first, embeds queries.

  Raises:
    ValueError: If there is no BERT, there are two networks for one role, an encoder has weights
      that no BERT has or that are not finite, or the masked-LM head is not tied to the word
      embeddings.
  """
  networks = [network for source in sources for network in _networks(source)]
  found: dict[str, list[_Network]] = {"span_reader": [], "tower": [], "bert": []}
  for network in networks:
    network.check()
    found[network.kind].append(network)
  towers = _towers(found["tower"])
  for kind, several in (("span reader", found["span_reader"]), ("plain BERT", found["bert"])):
    if len(several) > 1:
      places = ", ".join(f"{n.source.name} ({n.stem or 'no prefix'})" for n in several)
      raise ValueError(f"{len(several)} networks of kind {kind}: {places}; import one of them")
  weights, used = {}, set()

  def take(network: _Network, here: str, *, heads: Heads) -> None:
    for ours, theirs in network.names(here, heads=heads).items():
      if theirs in network.source.weights:
        weights[ours] = _finite(network.source, theirs)
        used.add((network.source.name, theirs))

  lender = (towers or found["bert"] or found["span_reader"])[0]
  places = ("query_tower", "passage_tower") if len(towers) == 2 else ("tower",)
  for place, network in zip(places, towers or [lender], strict=True):
    take(network, f"dual_encoder/{place}", heads=_EMBEDDER)
  reads = found["bert"] or [n for n in towers if n.source.sentence_encoder]
  for network in reads:
    _check_tied(network)
    take(network, "knowledge_augmented_encoder", heads=[MASKED_LM])
  for network in found["span_reader"]:
    linear = network.owner + _LINEAR_SPANS in network.source.weights
    head = LINEAR_SPANS if linear else SPANS
    take(network, "span_reader", heads=[head])
  return ImportedModel(
    dual_encoder=_dual_encoder_config(lender, towers),
    knowledge_augmented_encoder=reads[0].config if reads else None,
    span_reader=_span_reader_config(found["span_reader"][0]) if found["span_reader"] else None,
    weights=weights,
    unused=tuple(
      sorted(
        name
        for source in sources
        for name in source.weights
        if (source.name, name) not in used and not _KNOWN_REST.search(name)
      )
    ),
  )


def fill(
  shapes: Mapping[str, tuple[int, ...]], weights: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], list[str]]:
  """Returns the float32 parameters from the weights, and the paths still to be initialised.

  Raises:
    ValueError: If weights have the wrong shape, or encoder parameters have no weight (only heads
      may be missing); the message names them.
  """
  wrong = [
    f"{path}: {weights[path].shape}, not {huggingface_names.shape_there(path, shape)}"
    for path, shape in shapes.items()
    if path in weights and weights[path].shape != huggingface_names.shape_there(path, shape)
  ]
  if wrong:
    raise ValueError(
      f"{len(wrong)} weights do not have the shape that the configuration implies: "
      f"{'; '.join(wrong)}"
    )
  missing = sorted(path for path in shapes if path not in weights)
  lost = [path for path in missing if "/bert/" in path]
  if lost:
    raise ValueError(f"{len(lost)} parameters of an encoder have no weight: {', '.join(lost)}")
  params = {
    path: np.ascontiguousarray(
      huggingface_names.to_ours(path, weights[path], shape), dtype=np.float32
    )
    for path, shape in shapes.items()
    if path in weights
  }
  return params, missing


def _networks(source: Source) -> list[_Network]:
  stems = sorted(name.removesuffix(_WORDS) for name in source.weights if name.endswith(_WORDS))
  if not stems:
    raise ValueError(f"{source.name} has no BERT: no weight is named {_WORDS}")
  networks = []
  for stem in stems:
    if not source.settings:
      config = huggingface_names.config_from_weights(source.weights, stem, name=source.name)
      networks.append(_Network(source, stem, config))
      continue
    config, skipped = huggingface_names.config_from_json(
      source.settings, name=source.name, stem=stem
    )
    weights, name = source.weights, stem + _POSITIONS
    if skipped and name in weights:
      weights = {**weights, name: weights[name][skipped:]}
    networks.append(_Network(dataclasses.replace(source, weights=weights), stem, config))
  return networks


def _finite(source: Source, name: str) -> np.ndarray:
  """Returns a weight; raises ValueError if it is not made of finite numbers."""
  array = source.weights[name]
  if not jnp.issubdtype(array.dtype, jnp.floating):
    raise ValueError(f"{source.name}: {name} is {array.dtype}; only float weights are supported")
  if not np.isfinite(array).all():
    raise ValueError(
      f"{source.name}: {name} has values that are NaN or infinite; the training that wrote it had "
      "diverged, or the file is damaged"
    )
  return array


def _towers(found: list[_Network]) -> list[_Network]:
  """Returns the tower, or the query and the passage tower if they differ."""
  if len(found) < 2:
    return found
  query, *rest = sorted(found, key=lambda network: not network.owner.startswith("query_embedder."))
  if len(rest) > 1:
    names = ", ".join(dict.fromkeys(network.source.name for network in found))
    raise ValueError(
      f"{len(found)} embedders in {names}; import one for queries and one for passages"
    )
  (passage,) = rest
  weights = [
    {
      path: network.source.weights.get(name)
      for path, name in network.names("", heads=_EMBEDDER).items()
    }
    for network in (query, passage)
  ]
  same = all(_equal(weights[0][path], weights[1].get(path)) for path in weights[0])
  return [passage] if same else [query, passage]


def _equal(first: np.ndarray | None, second: np.ndarray | None) -> bool:
  """Returns whether two arrays are equal, or both missing."""
  if first is None or second is None:
    return first is second
  return np.array_equal(first, second)


def _check_tied(network: _Network) -> None:
  weights = network.source.weights
  head = f"{network.owner}cls.predictions."
  for tied, to in (("decoder.weight", network.stem + _WORDS), ("decoder.bias", f"{head}bias")):
    if (decoder := weights.get(head + tied)) is not None and not _equal(weights.get(to), decoder):
      raise ValueError(
        f"{network.source.name}: {head}{tied} is not tied to {to}; a separate output embedding is "
        "not supported"
      )


def _dual_encoder_config(lender: _Network, towers: list[_Network]) -> DualEncoderConfig:
  sentence = lender.source.sentence_encoder
  projection = lender.source.weights.get(lender.owner + _PROJECTION)
  size = _DEFAULT_PROJECTION if projection is None else len(projection)
  if sentence is None:
    epsilon = lender.source.projection_epsilon or lender.config.layer_norm_epsilon
    return DualEncoderConfig(
      bert=lender.config,
      projection_size=size,
      towers="separate" if len(towers) == 2 else "shared",
      layer_norm_epsilon=epsilon,
    )
  return DualEncoderConfig(
    bert=lender.config,
    projection_size=size if sentence.output == "projection" else lender.config.hidden_size,
    pooling=sentence.pooling,
    output=sentence.output,
    layer_norm_epsilon=LAYER_NORM_EPSILON,
  )


def _span_reader_config(network: _Network) -> SpanReaderConfig:
  settings = network.source.settings
  if network.owner + _LINEAR_SPANS in network.source.weights:
    return SpanReaderConfig(
      bert=network.config, span_hidden_size=0, max_span_width=_LINEAR_SPAN_WIDTH
    )
  dense = network.source.weights[network.owner + _SPANS]
  defaults = SpanReaderConfig(bert=network.config)
  return SpanReaderConfig(
    bert=network.config,
    span_hidden_size=len(dense) // 2,
    max_span_width=settings.get("max_span_width", defaults.max_span_width),
    layer_norm_epsilon=settings.get("reader_layer_norm_eps", defaults.layer_norm_epsilon),
  )
