"""The models of a knowledge base: copies in its folder, of what encodes and reads alone."""

import dataclasses
import json
import os
from collections.abc import Sequence

from realm_jax.checkpoints import importing, orbax_files, saved_models
from realm_jax.checkpoints.best_checkpoint import BEST
from realm_jax.checkpoints.formats import imported_model
from realm_jax.checkpoints.saved_models import ModelDescription
from realm_jax.devices import partitioning
from realm_jax.foundations import hub, json_fields, object_store
from realm_jax.foundations.output_kinds import DirectoryKind
from realm_jax.knowledge_base import commits
from realm_jax.knowledge_base.commits import CHECKPOINTS, VOCABULARY
from realm_jax.knowledge_base.encoder import Encoder
from realm_jax.models.uniform_encoder import UniformEncoderConfig
from realm_jax.retrieval.question_retriever import BeamConfig
from realm_jax.text import wordpieces

_KIND = DirectoryKind(name="a model", files=(f"{CHECKPOINTS}/", f"{VOCABULARY}/"))
# Wordpieces that a model reads, unless it says it.
_LENGTHS = {"query_length": 64, "passage_length": 256}


@dataclasses.dataclass(frozen=True)
class _Model:
  description: ModelDescription
  params: dict
  vocabulary: wordpieces.WordPieces


def copy_encoder(directory: str, source: str | os.PathLike) -> str:
  """Copies an encoder into a knowledge base; returns its name there, a digest.

  Raises:
    FileNotFoundError: If there is none.
    ValueError: If it was not trained to embed, or is a lexical encoder.
  """
  model = _found(_directory(source), reads=False)
  if model.description.dual_encoder.num_candidates:
    raise ValueError(
      f"{os.fspath(source)} ranks by words, as the knowledge base does already; give an encoder "
      "that was trained on texts, or none"
    )
  return _copy(directory, model)


def copy_reader(directory: str, source: str | os.PathLike) -> str:
  """Copies a span reader into a knowledge base; returns its name there, a digest.

  Raises:
    FileNotFoundError: If there is none.
    ValueError: If it was not fine-tuned for questions.
  """
  return _copy(directory, _found(_directory(source), reads=True))


def write_encoder(directory: str, encoder: Encoder) -> str:
  """Writes an encoder into a knowledge base; returns its name there."""
  return _copy(
    directory, _Model(encoder.description, {"dual_encoder": encoder.params}, encoder.vocabulary)
  )


def _copy(directory: str, model: _Model) -> str:
  content = json.dumps(json_fields.as_json(model.description), sort_keys=True)
  content += saved_models.params_digest(model.params)

  def write(temporary: str) -> None:
    model.vocabulary.save(os.path.join(temporary, VOCABULARY))
    importing.write(os.path.join(temporary, CHECKPOINTS), model.description, model.params)

  return commits.write_model(directory, content.encode(), kind=_KIND, write=write)


def _directory(source: str | os.PathLike) -> str:
  return os.path.normpath(hub.fetch(source).directory)


def _found(source: str, *, reads: bool) -> _Model:
  if not object_store.absolute(source).exists():
    raise FileNotFoundError(
      f"no directory {source}; give that of a checkpoint or of a model of Hugging Face, or its "
      "OWNER/NAME on the hub, such as sentence-transformers/all-MiniLM-L6-v2"
    )
  for checkpoint in (source, os.path.join(source, BEST), os.path.join(source, CHECKPOINTS)):
    if orbax_files.steps(checkpoint):
      return _saved(source, checkpoint, reads=reads)
  return _imported(source, reads=reads)


def _saved(source: str, checkpoint: str, *, reads: bool) -> _Model:
  saved = saved_models.load(checkpoint)
  _check_trained(source, saved.drawn, reads=reads)
  mesh = partitioning.make_mesh()
  _, params = saved.open_qa_model(mesh) if reads else saved.retriever(mesh)
  folders = [os.path.join(folder, VOCABULARY) for folder in (source, os.path.dirname(checkpoint))]
  for folder in (source, *folders):
    if os.path.exists(os.path.join(folder, wordpieces.VOCABULARY_FILE)):
      vocabulary = wordpieces.load(folder)
      saved.check_vocabulary(vocabulary.digest, source=folder)
      description = _restricted(saved.description, reads=reads)
      return _with_what_was_trained(_Model(description, params, vocabulary), saved.drawn)
  raise FileNotFoundError(
    f"no vocabulary in {folders[-1]}; copy there the folder `vocabulary` of the passages that "
    f"{source} was trained with"
  )


def _imported(source: str, *, reads: bool) -> _Model:
  sources = [importing.read_source(source)]
  vocabulary = importing.read_tokenizer(sources)
  model = importing.with_prompts(imported_model.find(sources), sources, vocabulary)
  model = dataclasses.replace(
    model,
    knowledge_augmented_encoder=None,
    span_reader=model.span_reader if reads else None,
  )
  if reads and model.span_reader is None:
    raise ValueError(
      f"{source} has no span reader; give a BertForQuestionAnswering, or fine-tune one with `realm "
      "finetune`"
    )
  params, drawn = importing.imported_params(model, seed=0)
  _check_trained(source, drawn, reads=reads)
  encoder = model.dual_encoder
  lengths = importing.lengths(model, sources, default=_LENGTHS)
  positions = encoder.bert.max_length
  beam = dataclasses.replace(BeamConfig(), joint_length=min(BeamConfig().joint_length, positions))
  description = ModelDescription(
    dual_encoder=encoder,
    span_reader=model.span_reader,
    beam=beam if reads else None,
    # Of few positions a question takes half, so that a passage fits next to it.
    query_length=min(lengths["query_length"], positions // 2) if reads else lengths["query_length"],
    passage_length=min(lengths["passage_length"], positions - len(encoder.passage_prompt)),
    vocabulary_digest=vocabulary.digest,
    corpus_fingerprint="",
  )
  description.check_sizes(vocabulary)
  return _with_what_was_trained(_Model(description, params, vocabulary), drawn)


def _with_what_was_trained(model: _Model, drawn: Sequence[str]) -> _Model:
  """Returns the model without a dual encoder of random weights, which only a reader may lack."""
  if not any(path.startswith("dual_encoder/") for path in drawn):
    return model
  description = dataclasses.replace(model.description, dual_encoder=UniformEncoderConfig())
  params = {name: part for name, part in model.params.items() if name != "dual_encoder"}
  return dataclasses.replace(model, description=description, params=params)


def _check_trained(source: str, drawn: Sequence[str], *, reads: bool) -> None:
  if reads and (untrained := [path for path in drawn if path.startswith("span_reader/")]):
    raise ValueError(
      f"{source} lacks weights of its span reader: {', '.join(untrained)}; give one that is whole"
    )
  if not reads and any(path.startswith("dual_encoder/") for path in drawn):
    raise ValueError(
      f"{source} is a BERT that was not trained to embed texts; give a sentence encoder, or train "
      "one with `realm train_retriever`"
    )


def _restricted(description: ModelDescription, *, reads: bool) -> ModelDescription:
  return dataclasses.replace(
    description,
    knowledge_augmented_encoder=None,
    retrieval=None,
    span_reader=description.span_reader if reads else None,
    beam=description.beam if reads else None,
    max_masks=0,
    corpus_fingerprint="",
  )
