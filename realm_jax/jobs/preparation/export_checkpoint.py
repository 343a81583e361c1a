"""Writes a checkpoint for transformers and sentence-transformers, and an index as a .npy file."""

import os
from typing import Any

import flax.traverse_util
import jax
import numpy as np

from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.formats import huggingface_files
from realm_jax.checkpoints.opening import generation_made_by
from realm_jax.devices import partitioning
from realm_jax.foundations import atomic_files, choices, object_store
from realm_jax.foundations.output_kinds import DirectoryKind
from realm_jax.index import assembly
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.text import tokenization

MASKED_LM, EMBEDDINGS = "masked_lm", "embeddings.npy"
_TOWERS = {
  "tower": "sentence_encoder",
  "query_tower": "query_encoder",
  "passage_tower": "passage_encoder",
}
_FILES = ("*.json", "*.safetensors", "vocab.txt", "[0-9]_*/*.json", "[0-9]_*/*.safetensors")
_FOLDERS = (*_TOWERS.values(), MASKED_LM)
_EXPORT = DirectoryKind(
  name="an exported checkpoint",
  files=(*(f"{folder}/{file}" for folder in _FOLDERS for file in _FILES), EMBEDDINGS),
  marks=(*(f"{folder}/config.json" for folder in _FOLDERS), EMBEDDINGS),
)


def export_checkpoint(
  *,
  checkpoints: str,
  vocabulary: str,
  output: str,
  step: choices.CountOrZero | None = None,
  index: str | None = None,
  generation: choices.CountOrZero | None = None,
) -> None:
  """Writes `OUTPUT/sentence_encoder`, `OUTPUT/masked_lm` and `OUTPUT/embeddings.npy`.

  The dual encoder becomes a sentence-transformers directory that gives the same embeddings; two
  towers become `query_encoder` and `passage_encoder`. A knowledge-augmented encoder becomes a
  `BertForMaskedLM`.

  Args:
    checkpoints: Directory of checkpoints, `WORKDIR/checkpoints` of a training run.
    vocabulary: Directory of its vocabulary, `PASSAGES/vocabulary` of its corpus.
    output: Directory to write; replaced as a whole when finished.
    step: Step of the checkpoint; None uses the newest.
    index: Directory of index generations whose embeddings to write, which this checkpoint's
      passage encoder made; None writes none.
    generation: Index generation; None uses the newest.
  """
  object_store.check_local(output=output)
  _EXPORT.check(output)
  saved = saved_models.load(checkpoints, step=step)
  description = saved.description
  encoder = description.dual_encoder
  if not isinstance(encoder, DualEncoderConfig):
    raise ValueError(
      f"{saved.path} has a {type(encoder).__name__}, which sentence-transformers cannot express; "
      "only a DualEncoderConfig can be exported"
    )
  reader = description.knowledge_augmented_encoder
  if reader is not None and reader.copies:
    raise ValueError(f"{saved.path} has a reader that copies, which a BertForMaskedLM cannot")
  tokenizer = tokenization.load(vocabulary)
  saved.check_vocabulary(tokenizer.digest, source=vocabulary)
  mesh = partitioning.make_mesh()
  written = []
  _, params = saved.retriever(mesh)
  if index is not None:
    digest = saved_models.passages_digest(encoder, params["dual_encoder"])
    embeddings_NxE = assembly.load_embeddings(
      index, generation_made_by(digest, index, generation=generation)
    )
  length = max(
    description.query_length + len(encoder.query_prompt),
    description.passage_length + len(encoder.passage_prompt),
  )
  with atomic_files.new_directory(output, kind=_EXPORT) as directory:
    for name, tower in params["dual_encoder"].items():
      huggingface_files.write_sentence_encoder(
        os.path.join(directory, _TOWERS[name]),
        _flat(tower),
        config=encoder,
        tokenizer=tokenizer,
        max_length=length,
      )
      written.append(_TOWERS[name])
    if reader is not None:
      _, params = saved.pretraining_model(mesh)
      huggingface_files.write_masked_lm(
        os.path.join(directory, MASKED_LM),
        _flat(params["knowledge_augmented_encoder"]),
        config=reader,
        tokenizer=tokenizer,
      )
      written.append(MASKED_LM)
    if index is not None:
      np.save(os.path.join(directory, EMBEDDINGS), np.asarray(embeddings_NxE, np.float32))
      written.append(EMBEDDINGS)
  print(f"{output}: {', '.join(written)} of step {saved.step}", flush=True)


def _flat(params) -> dict[str, np.ndarray]:
  flat: dict[str, Any] = flax.traverse_util.flatten_dict(jax.device_get(params), sep="/")
  return flat
