"""Trains a BERT to tag named entities on sentences in CoNLL's format."""

import json
import os
from collections.abc import Sequence

from realm_jax.data import batches, conll
from realm_jax.evaluation import entities
from realm_jax.foundations import atomic_files
from realm_jax.models.bert import BertConfig
from realm_jax.models.token_tagger import TokenTaggerConfig
from realm_jax.runs import taggers
from realm_jax.runs.training_run import Evaluation, TrainingRun, WarmStart
from realm_jax.saved import saved_models
from realm_jax.text import tokenization
from realm_jax.training import train_loop

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
  tagging: taggers.TaggerTraining = taggers.TaggerTraining(),
) -> dict:
  """Trains with the mean cross-entropy of words (Devlin et al. 2018, section 5.3).

  A run that has taken all its steps is only evaluated.

  Args:
    workdir: Directory of the run; an existing run is resumed.
    train: CoNLL file to train on; its labels are those of the tagger.
    vocabulary: Directory with `vocab.txt`.
    dev: CoNLL file to evaluate on during training; None disables this.
    test: CoNLL file to evaluate on at the end, into `figures.json`; None disables this.
    warm_start: Checkpoints of `realm import_checkpoint` or of pre-training whose BERT the tagger
      starts from; None starts from random weights.
    bert: Size of the encoder; None uses that of the warm start.
    tagging: The configuration of the training.

  Returns:
    Precision, recall and F1 of the entities of `test`, also by label; empty without `test`.

  Raises:
    FileNotFoundError: If a file, the vocabulary or the warm start is missing.
    ValueError: If neither `bert` nor `warm_start` is given, or files, vocabulary and model do not
      match each other.
  """
  taggers.check_one_process()
  if dev is not None or test is not None:
    entities.check_available()
  tokenizer = tokenization.load(vocabulary)
  warm_starts, config = _encoder(warm_start, bert, tokenizer)
  longest = max(tagging.buckets)
  config.check(tokenizer.vocab_size, name="bert", buckets=longest)
  tags = conll.tag_set(conll.read_conll(train))
  evaluated: dict[str | None, list[conll.TaggedSentence]] = {
    file: _known(file, tags) for file in (dev, test) if file is not None
  }
  description = taggers.TaggerDescription(
    tagger=TokenTaggerConfig(bert=config, num_tags=len(tags), dropout_rate=tagging.dropout_rate),
    tags=tags,
    vocabulary_digest=tokenizer.digest,
  )
  # Imported here because other jobs of the same gin file start without TensorFlow.
  from realm_jax.data import input_pipeline
  from realm_jax.data.token_labels import TokenLabelsConverter
  from tasks import ner

  features = input_pipeline.task_batches(
    ner.register(file=train, vocabulary=vocabulary, tags=tags),
    converter=TokenLabelsConverter(),
    lengths={"tokens": longest, "labels": longest},
    batch_size=tagging.batch_size,
    seed=tagging.run.seed,
    training=True,
    buckets=tagging.buckets,
  )
  with TrainingRun(
    workdir,
    program=tagging.program(description.tagger),
    config=tagging,
    description=description,
    batch_settings={
      "pipeline": batches.PIPELINE,
      "train": conll.digest(train),
      "batch_size": tagging.batch_size,
      "buckets": tagging.buckets,
      "seed": tagging.run.seed,
    },
    warm_starts=warm_starts,
  ) as run:
    tokenizer.save(os.path.join(workdir, taggers.VOCABULARY))
    word_tagger = taggers.WordTagger(
      description, tokenizer=tokenizer, mesh=run.mesh, tokens_per_batch=tagging.tokens_per_batch
    )

    def figures_of(file: str | None, params) -> dict:
      sentences = evaluated[file]
      predicted = word_tagger.tag(params, [sentence.words for sentence in sentences])
      return entities.entity_figures([sentence.tags for sentence in sentences], predicted)

    def on_dev(params) -> dict[str, float]:
      figures = figures_of(dev, params)
      return {f"eval/{name}": figures[name] for name in _MAIN_FIGURES}

    run.train(
      train_loop.PlainBatches(features, place=run.place),
      evaluation=None if dev is None else Evaluation(figures=on_dev, every=tagging.eval_every),
    )
    if test is None or run.step < tagging.run.num_steps:
      return {}
    figures = figures_of(test, run.state.params)
  content = {"step": run.step, "test": test, **figures}
  atomic_files.write_json(os.path.join(workdir, "figures.json"), content)
  print(f"{workdir}: {json.dumps(figures)}", flush=True)
  return figures


def _encoder(
  warm_start: str | None, bert: BertConfig | None, tokenizer: tokenization.WordPieceTokenizer
) -> tuple[list[WarmStart], BertConfig]:
  """Returns where the encoder's parameters come from, and its configuration."""
  if warm_start is None:
    if bert is None:
      raise ValueError(
        "the tagger has neither a size nor a warm start; bind train_tagger.bert, or give the "
        "checkpoints of `realm import_checkpoint` with --warm_start"
      )
    return [], bert
  saved_models.check_warm_starts([warm_start], tokenizer)
  found = saved_models.load(warm_start).description.reading_bert
  if found is None:
    raise ValueError(f"warm_start={warm_start} has no BERT; give other checkpoints")
  path, config = found
  return [WarmStart(warm_start, [("bert", path)])], bert or config


def _known(file: str, tags: Sequence[str]) -> list[conll.TaggedSentence]:
  """Reads sentences to evaluate on, whose labels must be known."""
  sentences = conll.read_conll(file)
  others = set(conll.tag_set(sentences)) - set(tags)
  if others:
    labels = sorted({tag[2:] for tag in others})
    raise ValueError(
      f"{file} has labels {labels} that the training file lacks, so the tagger cannot find them; "
      "train with them, or map them to others"
    )
  return sentences
