"""Trains the dual encoder on pairs of queries and passages, to warm-start REALM."""

from realm_jax.data.batches import Streams
from realm_jax.models.encoder_programs import query_encoder
from realm_jax.pairs.hard_negatives import HardNegatives
from realm_jax.runs.contrastive import ContrastiveTraining
from realm_jax.runs.example_sources import pair_examples
from realm_jax.runs.training_run import TrainingRun, WarmStart
from realm_jax.saved.opening import Corpus, open_corpus
from realm_jax.training import train_loop


def pretrain_contrastive(
  *,
  workdir: str,
  passages: str,
  examples: str | None = None,
  index: str | None = None,
  warm_start: WarmStart | None = None,
  contrastive: ContrastiveTraining = ContrastiveTraining(),
) -> None:
  """Trains with the softmax over the passages of the whole batch and writes checkpoints.

  Args:
    workdir: Directory of the run; an existing run is resumed.
    passages: Directory of a prepared corpus.
    examples: Directory of pairs from `realm prepare_pairs` or `realm prepare_examples`, which need
      no TensorFlow; None makes pairs while training.
    index: Directory where `realm build_index --follow=true` publishes generations of this run: the
      newest one provides the hard negatives of mined pairs. None uses the mined ones.
    warm_start: Checkpoint to take parameters from; None starts from random weights.
    contrastive: The configuration of the training.

  Raises:
    FileNotFoundError: If the corpus is missing.
    ValueError: If sizes do not match each other, or there are no hard negatives to replace.
  """
  contrastive.check(index)
  starts = [] if warm_start is None else [warm_start]
  corpus = open_corpus(passages, warm_starts=[start.checkpoints for start in starts])
  made = pair_examples(contrastive.data, source=examples, store=corpus.store)
  with contrastive.open(workdir, made, corpus=corpus, warm_starts=starts) as run:
    features = made.streams(seed=contrastive.run.seed)
    if index is None:
      run.train(train_loop.PlainBatches(features, place=run.place), features)
    else:
      run.save_start()
      _train_on_index(run, contrastive, index, corpus=corpus, features=features)


def _train_on_index(
  run: TrainingRun,
  contrastive: ContrastiveTraining,
  index: str,
  *,
  corpus: Corpus,
  features: Streams,
) -> None:
  """Trains with hard negatives from the newest generation of this run."""
  with run.follow(index, refresh=contrastive.refresh) as refresher:
    if not refresher.first(stop=run.stopped):
      return
    negatives = HardNegatives(
      encode_query=query_encoder(contrastive.dual_encoder, run.place, sharding=run.batch_sharding),
      searcher=refresher.current.searcher,
      store=corpus.store,
    )
    pairs = ((batch, {}) for batch in features)
    source = run.retrieved_batches(pairs, retriever=negatives, refresher=refresher)
    generation = lambda: {"generation": refresher.current.generation}  # noqa: E731
    run.train(source, features, metadata=generation)
