"""Trains a BERT to tag named entities, from sentences in CoNLL's format."""

import functools
import json
import os
from collections.abc import Sequence

from realm_jax import atomic_files, partitioning, tokenization
from realm_jax.data import conll
from realm_jax.evaluation import entities
from realm_jax.models.bert import BertConfig
from realm_jax.models.token_tagger import TokenTagger, TokenTaggerConfig
from realm_jax.runs import objectives, taggers
from realm_jax.runs.training_run import TrainingRun, WarmStart
from realm_jax.saved import saved_models
from realm_jax.training import train_loop
from realm_jax.training.optimizer import OptimizerConfig

_MAIN_FIGURES = ("precision", "recall", "f1")


def train_tagger(
  *,
  workdir: str,
  train: str,
  vocabulary: str,
  dev: str | None = None,
  test: str | None = None,
  warm_start: str | None = None,
  bert: BertConfig | None = None,
  optimizer: OptimizerConfig = OptimizerConfig(name="adamw", num_steps=1000),
  num_steps: int = 1000,
  batch_size: int = 32,
  buckets: Sequence[int] = (32, 64, 128),
  dropout_rate: float = 0.1,
  tokens_per_batch: int = 4096,
  seed: int = 0,
  accumulate_steps: int = 1,
  model_parallel: int = 1,
  layout: partitioning.Layout = "replicated",
  log_every: int = 50,
  eval_every: int = 500,
  checkpoint_every: int = 500,
  keep_checkpoints: int = 2,
) -> dict:
  """Trains by the mean cross-entropy of words (Devlin et al. 2018, section 5.3); counts entities.

  A run that has all its steps is only evaluated.

  Args:
    workdir: directory of the run; a run that is there is continued.
    train: CoNLL file to train with; its labels are those of the tagger.
    vocabulary: directory with `vocab.txt`.
    dev: CoNLL file to evaluate with on the way; none: no evaluation on the way.
    test: CoNLL file to evaluate with at the end, into `figures.json`; none: no evaluation.
    warm_start: checkpoints of `realm import_checkpoint`, or of a pre-training, whose BERT the
      tagger begins with; none: a random one.
    bert: size of the encoder; none: that of the warm start.
    optimizer: its settings; its schedule should have `num_steps`.
    num_steps: steps of the whole run.
    batch_size: sentences a step.
    buckets: wordpieces that batches are padded to, in ascending order; a sentence longer than the
      last one is cut in training, never in evaluation.
    dropout_rate: before the classifier.
    tokens_per_batch: padded wordpieces evaluated at once.
    seed: of parameters, data order and dropout.
    accumulate_steps: parts of a batch computed one after the other.
    model_parallel: devices that share one copy of the model.
    layout: of parameters and optimizer, "replicated" or "fully_sharded".
    log_every: steps between two writes of metrics.
    eval_every: steps between two evaluations.
    checkpoint_every: steps between two checkpoints.
    keep_checkpoints: checkpoints kept.

  Returns:
    Precision, recall and F1 of the entities of `test`, and of each label; empty without `test`.

  Raises:
    FileNotFoundError: if a file, the vocabulary or the warm start is missing.
    ValueError: if neither `bert` nor `warm_start` is given, or files, vocabulary and model do not
      fit each other.
  """
  taggers.check_one_process()
  if dev is not None or test is not None:
    entities.check_available()
  if list(buckets) != sorted(set(buckets)) or not buckets:
    raise ValueError(f"buckets={list(buckets)}; buckets must ascend, and there must be one")
  tokenizer = tokenization.load(vocabulary)
  warm_starts, config = _encoder(warm_start, bert, tokenizer)
  saved_models.check_sizes(tokenizer, {"bert": config}, {"bert": {"buckets": max(buckets)}})
  tags = conll.tag_set(conll.read_conll(train))
  evaluated = {file: _known(file, tags) for file in (dev, test) if file is not None}
  description = taggers.TaggerDescription(
    tagger=TokenTaggerConfig(bert=config, num_tags=len(tags), dropout_rate=dropout_rate),
    tags=tags,
    vocabulary_digest=tokenizer.digest,
  )
  # Needs TensorFlow, without which other jobs of the same gin file start.
  from realm_jax.data import input_pipeline
  from realm_jax.data.token_labels import TokenLabelsConverter
  from tasks import ner

  features = input_pipeline.task_batches(
    ner.register(file=train, vocabulary=vocabulary, tags=tags),
    converter=TokenLabelsConverter(),
    lengths={"tokens": max(buckets), "labels": max(buckets)},
    batch_size=batch_size,
    seed=seed,
    training=True,
    buckets=buckets,
  )
  with TrainingRun(
    workdir=workdir,
    init_params=functools.partial(taggers.init_params, description.tagger),
    objective=objectives.tags(TokenTagger(description.tagger)),
    optimizer=optimizer,
    warm_starts=warm_starts,
    seed=seed,
    accumulate_steps=accumulate_steps,
    model_parallel=model_parallel,
    layout=layout,
    keep_checkpoints=keep_checkpoints,
  ) as run:
    if run.resumed is not None:
      saved_models.check_same_run(run.resumed.metadata, description, workdir)
    tokenizer.save(os.path.join(workdir, taggers.VOCABULARY))
    word_tagger = taggers.WordTagger(
      description, tokenizer=tokenizer, mesh=run.mesh, tokens_per_batch=tokens_per_batch
    )

    def figures_of(file: str, params) -> dict:
      sentences = evaluated[file]
      predicted = word_tagger.tag(params, [sentence.words for sentence in sentences])
      return entities.entity_figures([sentence.tags for sentence in sentences], predicted)

    def on_dev(params) -> dict[str, float]:
      figures = figures_of(dev, params)
      return {f"eval/{name}": figures[name] for name in _MAIN_FIGURES}

    source = train_loop.PlainBatches(features, place=run.place)
    run.train(
      run.first_batch(source, features),
      source=source,
      num_steps=num_steps,
      log_every=log_every,
      checkpoint_every=checkpoint_every,
      input=lambda: {"position": features.position(), "batch": source.in_flight()},
      metadata=lambda: {"model": description.to_json()},
      evaluate=None if dev is None else on_dev,
      eval_every=eval_every,
    )
    if test is None or run.step < num_steps:
      return {}
    figures = figures_of(test, run.state.params)
  content = json.dumps({"step": num_steps, "test": test, **figures}, indent=2)
  atomic_files.write_text(os.path.join(workdir, "figures.json"), content + "\n")
  print(f"{workdir}: {json.dumps(figures)}", flush=True)
  return figures


def _encoder(
  warm_start: str | None, bert: BertConfig | None, tokenizer: tokenization.WordPieceTokenizer
) -> tuple[list[WarmStart], BertConfig]:
  """Returns where the encoder's parameters come from, and its configuration."""
  if warm_start is None:
    if bert is None:
      raise ValueError(
        "the tagger has neither a size nor a warm start; bind train_tagger.bert, or name the "
        "checkpoints of `realm import_checkpoint` with --warm_start"
      )
    return [], bert
  saved_models.check_warm_starts([warm_start], tokenizer)
  saved = saved_models.load(warm_start).description
  if saved.knowledge_augmented_encoder is not None:
    path, config = "knowledge_augmented_encoder/bert", saved.knowledge_augmented_encoder
  else:
    tower = "tower" if saved.dual_encoder.towers == "shared" else "query_tower"
    path, config = f"dual_encoder/{tower}/bert", saved.dual_encoder.bert
  return [WarmStart(warm_start, [("bert", path)])], bert or config


def _known(file: str, tags: Sequence[str]) -> list[conll.TaggedSentence]:
  """Reads sentences to evaluate with, whose labels must be known."""
  sentences = conll.read_conll(file)
  others = set(conll.tag_set(sentences)) - set(tags)
  if others:
    labels = sorted({tag[2:] for tag in others})
    raise ValueError(
      f"{file} has labels {labels} that the training file lacks; a tagger cannot find them: train "
      "with them, or map them to others"
    )
  return sentences
