"""Directories of transformers and sentence-transformers: weights, settings, modules after BERT.

sentence-transformers fixes the epsilon of its layer norm. A layer norm of c·x with epsilon c²·e
equals that of x with e, so the projection before it is written scaled by c and the embeddings stay
the same.
"""

import dataclasses
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import ml_dtypes  # noqa: F401  gives NumPy the dtype bfloat16
import numpy as np
import safetensors
import safetensors.numpy

from realm_jax.checkpoints.formats import huggingface_names, sentence_modules
from realm_jax.foundations import atomic_files, plain_files, text_files
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig, Output, Pooling
from realm_jax.text import tokenization

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
LAYER_NORM_EPSILON = 1e-5  # of every layer norm in sentence-transformers
_PROMPTS_FILE = "config_sentence_transformers.json"
# The settings of a Transformer module; older versions had a name for each architecture.
_SETTINGS = [f"sentence_{of}_config.json" for of in ("bert", "roberta", "camembert", "xlm-roberta")]
# Before version 5.2 each mode had its own flag.
_POOLINGS = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
_ACTIVATIONS = {
  "Tanh": "torch.nn.modules.activation.Tanh",
  "Identity": "torch.nn.modules.linear.Identity",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceEncoder:
  """The modules after BERT.

  Attributes:
    weights: Weights of pooler and projection, by the names of a REALM embedder.
    bert_directory: Directory of BERT, relative to the model's.
    prompts: Texts that precede every text, by setting: "query_prompt", "passage_prompt".
    max_length: The most wordpieces that it reads of a text, with prompt and special ones; None if
      only its positions limit them.
    lower_case: Whether texts lose their case, whatever the tokenizer declares.
  """

  pooling: Pooling
  output: Output
  weights: dict[str, np.ndarray]
  bert_directory: str = ""
  prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
  max_length: int | None = None
  lower_case: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
  """Weights as read from files.

  Attributes:
    name: Identifies the source in messages.
    weights: Arrays by Hugging Face's names.
    settings: Content of Hugging Face's `config.json`; if empty, derived from the weights.
    sentence_encoder: The modules after BERT in a sentence-transformers directory.
    projection_epsilon: Epsilon of an embedder's layer norm; None uses that of its BERT, with which
      the released embedders were trained.
  """

  name: str
  weights: Mapping[str, np.ndarray]
  settings: Mapping = dataclasses.field(default_factory=dict)
  sentence_encoder: SentenceEncoder | None = None
  projection_epsilon: float | None = None

  @property
  def tokenizer(self) -> str:
    """The directory of its vocabulary, if it has one."""
    encoder = self.sentence_encoder
    return self.name if encoder is None else os.path.join(self.name, encoder.bert_directory)


def read(directory: str) -> Source:
  """Reads the weights and settings of a directory, and the modules after BERT if it names any."""
  sentence_encoder = read_sentence_encoder(directory)
  folder = directory
  if sentence_encoder is not None:
    folder = os.path.join(directory, sentence_encoder.bert_directory)
  path = os.path.join(folder, CONFIG_FILE)
  if not os.path.exists(path):
    raise FileNotFoundError(f"no {CONFIG_FILE} in {folder}; download it with the weights")
  settings = text_files.read_json(path)
  found = read_weights(folder)
  weights = {new: found[old] for new, old in huggingface_names.modernised(found).items()}
  if sentence_encoder is not None:
    weights |= sentence_encoder.weights
  return Source(
    name=directory, weights=weights, settings=settings, sentence_encoder=sentence_encoder
  )


def read_weights(directory: str | os.PathLike) -> dict[str, np.ndarray]:
  """Returns the arrays of a directory by name; the file may be sharded."""
  path = pathlib.Path(directory, WEIGHTS_FILE)
  if path.exists():
    return read_safetensors(path)
  index = pathlib.Path(f"{path}.index.json")
  if index.exists():
    weights = {}
    for shard in sorted(set(text_files.read_json(index)["weight_map"].values())):
      if os.path.basename(shard) != shard:
        raise ValueError(f"{index} names {shard!r}, which is not a file next to it")
      weights |= read_safetensors(os.path.join(directory, shard))
    return weights
  if pickles := sorted(pathlib.Path(directory).glob("pytorch_model*.bin")):
    raise ValueError(
      f"{pickles[0]} is a pickle, which is not read; save it as {WEIGHTS_FILE}, as "
      "docs/checkpoints.md shows"
    )
  raise FileNotFoundError(f"no weights in {os.fspath(directory)}; it should have {WEIGHTS_FILE}")


def read_safetensors(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Returns the arrays of a file by name."""
  plain_files.check_file(path)
  try:
    return safetensors.numpy.load_file(path)
  except safetensors.SafetensorError as error:
    raise ValueError(f"{os.fspath(path)} is not a complete safetensors file: {error}") from error


def write_weights(directory: str | os.PathLike, arrays: Mapping[str, np.ndarray]) -> None:
  """Writes arrays by name."""
  # The library copies an array's memory as is, ignoring its strides.
  contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
  content = safetensors.numpy.save(contiguous, metadata={"format": "pt"})
  atomic_files.write_bytes(os.path.join(directory, WEIGHTS_FILE), content)


def read_optional_json(directory: str | os.PathLike, name: str) -> dict:
  """Returns the object in a JSON file; empty if there is none."""
  path = os.path.join(directory, name)
  return text_files.read_json(path) if os.path.exists(path) else {}


def read_sentence_encoder(directory: str | os.PathLike) -> SentenceEncoder | None:
  """Reads `modules.json` and the modules it names; returns None if the directory has none.

  Raises:
    ValueError: If no tower of ours computes what the modules compute.
  """
  if (modules := sentence_modules.read(directory)) is None:
    return None
  kinds = [kind for kind, _ in modules]
  paths = [os.path.join(directory, folder) for _, folder in modules]
  if kinds[:2] != ["Transformer", "Pooling"]:
    raise ValueError(
      f"{os.fspath(directory)}: modules {kinds}; they must begin with a Transformer and a Pooling"
    )
  settings = read_optional_json(directory, _PROMPTS_FILE)
  prompts = _prompts(settings, directory)
  similarity = settings.get("similarity_fn_name") or "cosine"  # as the library has it
  if similarity not in ("dot", "cosine") or settings.get("truncate_dim"):
    raise ValueError(
      f"{os.fspath(directory)}: similarity_fn_name={similarity!r}, truncate_dim="
      f"{settings.get('truncate_dim')}; whole embeddings are compared, by 'dot' or 'cosine'"
    )
  pooling = _pooling(paths[1], prompted=bool(prompts))
  common = _transformer(paths[0]) | {"bert_directory": modules[0][1], "prompts": prompts}
  rest = kinds[2:]
  if rest in ([], ["Normalize"]):
    output = "unit_length" if rest or similarity == "cosine" else "pooled"
    return SentenceEncoder(pooling=pooling, output=output, weights={}, **common)
  weights = {}
  if rest[:2] == ["Dense", "Dense"] and pooling == "cls":
    weights |= _read_dense(paths[2], activation="Tanh", name="pooler.dense")
    pooling, rest, paths = "pooler", rest[1:], paths[1:]
  if rest != ["Dense", "LayerNorm"]:
    raise ValueError(
      f"{os.fspath(directory)}: modules {kinds}; only Normalize, or Dense and LayerNorm, may "
      "follow the pooling (and a Dense with tanh, BERT's pooler, before them)"
    )
  if similarity == "cosine":
    raise ValueError(
      f"{os.fspath(directory)}: similarity_fn_name='cosine', the default, after a LayerNorm; only "
      f"'dot' is supported there, in {_PROMPTS_FILE}"
    )
  weights |= _read_dense(paths[2], activation="Identity", name="cls.dense")
  norm = read_weights(paths[3])
  weights |= {f"cls.LayerNorm.{leaf}": norm[f"norm.{leaf}"] for leaf in ("weight", "bias")}
  return SentenceEncoder(pooling=pooling, output="projection", weights=weights, **common)


def _transformer(path: str) -> dict[str, Any]:
  """Returns the fields of a `SentenceEncoder` that its first module declares."""
  settings = next(filter(None, (read_optional_json(path, name) for name in _SETTINGS)), {})
  tokenizer = read_optional_json(path, tokenization.CONFIG_FILE)
  limits = [settings.get("max_seq_length"), tokenizer.get("model_max_length")]
  declared = next((limit for limit in limits if limit is not None), None)
  if declared is not None and declared < 3:
    raise ValueError(f"{path}: max_seq_length={declared} leaves no room for text")
  return {"max_length": declared, "lower_case": bool(settings.get("do_lower_case"))}


def _prompts(settings: dict, directory: str | os.PathLike) -> dict[str, str]:
  declared, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
  if default is not None and default not in declared:
    raise ValueError(
      f"{os.fspath(directory)}: default_prompt_name={default!r} in {_PROMPTS_FILE} is none of its "
      f"prompts, {', '.join(declared) or 'of which there are none'}"
    )
  if not all(isinstance(text, str) for text in declared.values()):
    raise ValueError(f"{os.fspath(directory)}: prompts={declared} in {_PROMPTS_FILE} are no texts")
  # A passage is the first of these that sentence-transformers' `encode_document` finds.
  passage = next((name for name in ("document", "passage", "corpus") if name in declared), "")
  texts = {"query_prompt": "query", "passage_prompt": passage}
  found = {of: declared.get(name, declared.get(default)) for of, name in texts.items()}
  return {of: text for of, text in found.items() if text}


def _pooling(path: str, *, prompted: bool) -> Pooling:
  settings = text_files.read_json(os.path.join(path, CONFIG_FILE))
  if prompted and not settings.get("include_prompt", True):
    raise ValueError(f"{path}: a pooling that leaves out the prompt is not supported")
  mode: Any = settings.get("pooling_mode")
  if mode is None:
    flags = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value]
    mode = next((mode for mode, flag in _POOLINGS.items() if flags == [flag]), flags)
  if mode not in _POOLINGS:
    raise ValueError(f"{path}: pooling {mode}; only {' and '.join(_POOLINGS)} are supported")
  return mode


def _read_dense(path: str, *, activation: str, name: str) -> dict[str, np.ndarray]:
  settings = text_files.read_json(os.path.join(path, CONFIG_FILE))
  found = settings.get("activation_function", "").rpartition(".")[2]
  if found != activation:
    raise ValueError(f"{path}: activation {found}; only {activation} is supported here")
  weights = read_weights(path)
  if "linear.bias" not in weights:
    weights["linear.bias"] = np.zeros(len(weights["linear.weight"]), np.float32)
  return {f"{name}.{leaf}": weights[f"linear.{leaf}"] for leaf in ("weight", "bias")}


def write_masked_lm(
  directory: str,
  params: Mapping[str, np.ndarray],
  *,
  config: BertConfig,
  tokenizer: tokenization.WordPieceTokenizer,
) -> None:
  """Writes a knowledge-augmented encoder and its tokenizer as a `BertForMaskedLM`."""
  encoder = huggingface_names.encoder(config.num_layers)
  names = huggingface_names.prefixed(encoder, here="bert/", there="bert.")
  names |= huggingface_names.MASKED_LM
  _write_bert(directory, params, names, config=config, kind="BertForMaskedLM")
  tokenizer.save(directory)


def write_sentence_encoder(
  directory: str,
  params: Mapping[str, np.ndarray],
  *,
  config: DualEncoderConfig,
  tokenizer: tokenization.WordPieceTokenizer,
  max_length: int,
) -> None:
  """Writes a tower and its tokenizer as a sentence-transformers directory."""
  encoder = huggingface_names.encoder(config.bert.num_layers)
  names = huggingface_names.prefixed(encoder, here="bert/")
  if config.pooling == "pooler":
    names |= huggingface_names.POOLER
  modules = [("Transformer", "")]

  def write_json(name: str, content) -> None:
    atomic_files.write_json(os.path.join(directory, name), content)

  def add(kind: str, settings: dict, weights: Mapping[str, np.ndarray]) -> None:
    folder = f"{len(modules)}_{kind}"
    modules.append((kind, folder))
    os.mkdir(os.path.join(directory, folder))
    write_json(os.path.join(folder, CONFIG_FILE), settings)
    if weights:
      write_weights(os.path.join(directory, folder), weights)

  _write_bert(directory, params, names, config=config.bert, kind="BertModel")
  tokenizer.save(directory)
  mode = "mean" if config.pooling == "mean" else "cls"
  flags = {flag: each == mode for each, flag in _POOLINGS.items()}
  add("Pooling", {"word_embedding_dimension": config.bert.hidden_size, **flags}, {})
  if config.pooling == "pooler":
    add("Dense", *_dense_module(params, "pooler/dense", activation="Tanh", scale=1.0))
  if config.output == "projection":
    scale = math.sqrt(LAYER_NORM_EPSILON / config.layer_norm_epsilon)
    add("Dense", *_dense_module(params, "projection", activation="Identity", scale=scale))
    norm = {"norm.weight": params["projection_norm/scale"]}
    norm["norm.bias"] = params["projection_norm/bias"]
    add("LayerNorm", {"dimension": config.projection_size}, norm)
  elif config.output == "unit_length":
    add("Normalize", {}, {})
  listed = (
    {"idx": i, "name": str(i), "path": folder, "type": f"{sentence_modules.LIBRARY}models.{kind}"}
    for i, (kind, folder) in enumerate(modules)
  )
  write_json(sentence_modules.FILE, [*listed])
  write_json(_SETTINGS[0], {"max_seq_length": max_length, "do_lower_case": False})
  given = {"query": config.query_prompt, "document": config.passage_prompt}
  prompts = {of: f"{tokenizer.decode(ids)} " for of, ids in given.items() if ids}
  write_json(_PROMPTS_FILE, {"similarity_fn_name": "dot", "prompts": prompts})


def _write_bert(
  directory: str,
  params: Mapping[str, np.ndarray],
  names: Mapping[str, str],
  *,
  config: BertConfig,
  kind: str,
) -> None:
  to_theirs = huggingface_names.to_theirs
  write_weights(directory, {theirs: to_theirs(p, params[p]) for p, theirs in names.items()})
  settings = {"architectures": [kind], **huggingface_names.config_to_json(config)}
  atomic_files.write_json(os.path.join(directory, CONFIG_FILE), settings)


def _dense_module(
  params: Mapping[str, np.ndarray], path: str, *, activation: str, scale: float
) -> tuple[dict, dict[str, np.ndarray]]:
  """Returns the settings and weights of a dense module."""
  kernel, bias = params[f"{path}/kernel"], params[f"{path}/bias"]
  settings = {
    "in_features": len(kernel),
    "out_features": len(bias),
    "bias": True,
    "activation_function": _ACTIVATIONS[activation],
  }
  scale_f32 = np.float32(scale)
  return settings, {"linear.weight": scale_f32 * kernel.T, "linear.bias": scale_f32 * bias}
