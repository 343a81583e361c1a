"""Pre-trains the dual encoder and the knowledge-augmented encoder over retrieved passages."""

import dataclasses
import functools

from realm_jax.checkpoints.opening import open_corpus
from realm_jax.data import batches
from realm_jax.retrieval.retriever import Retriever
from realm_jax.training.recipes.examples import Examples
from realm_jax.training.recipes.fixed_validation import FixedValidation
from realm_jax.training.recipes.pretraining import PARTS, Pretraining
from realm_jax.training.recipes.samples import retrieved_samples
from realm_jax.training.run.starts import Starts, read
from realm_jax.training.run.training_run import TrainingRun


def pretrain(
  *,
  workdir: str,
  corpus: str,
  passages: str,
  index: str,
  pretraining: Pretraining = Pretraining(),
  start: Starts = (),
  eval_corpus: str | None = None,
) -> None:
  """Trains with the marginal likelihood of masked spans (Guu et al. 2020) and hot-swaps the index.

  Args:
    workdir: Directory of the run; an existing run is resumed.
    corpus: Directory of the tagged training corpus, from `realm prepare_corpus`, or of examples
      from `realm prepare_examples`, which need no TensorFlow.
    passages: Directory of the knowledge corpus, from `realm prepare_corpus`.
    index: Directory of the index generations, from `realm build_index`.
    pretraining: The configuration of the training.
    start: Checkpoints that a new run takes parameters from: CHECKPOINTS for all parts that they
      have, or CHECKPOINTS:dual_encoder; the flag may be repeated.
    eval_corpus: Directory of another tagged corpus, or of examples prepared in corpus order, to
      evaluate on with fixed masks; None disables evaluation. `WORKDIR/best` gets the checkpoint
      with the lowest loss on it, which may be the warm start.

  Raises:
    FileNotFoundError: If a corpus is missing.
    ValueError: If corpora, vocabulary, model, lengths and generation do not match each other, or
      settings contradict each other.
  """
  pretraining.check()
  starts = read(start, parts=PARTS)
  pretraining = pretraining.begun(starts)
  store = open_corpus(passages, starts=[start.checkpoints for start in starts])
  description = pretraining.describe(store)
  description.check_sizes(store.vocabulary)
  examples = Examples(data=pretraining.data, source=corpus, vocabulary=store.vocabulary_directory)
  # Fails on missing examples before waiting for an index.
  features = examples.streams(seed=pretraining.run.seed)
  encoder, posterior = pretraining.model.dual_encoder, pretraining.retrieval.posterior
  proposed = {"posterior": None if posterior is None else repr(posterior)}
  with TrainingRun(
    workdir,
    program=pretraining.program(lengths=store.length_quantiles()),
    config=pretraining,
    description=description,
    batch_settings=examples.batch_settings(seed=pretraining.run.seed) | proposed,
    starts=starts,
    min_entropy=pretraining.min_entropy,
  ) as run:
    run.save_start()
    if run.resumed is None:
      pretraining.warn_of_what_cannot_learn(starts)
    if pretraining.run.num_steps == 0:
      return
    wanted = pretraining.generation
    if wanted is not None and not pretraining.dual_encoder_learns:
      wanted = run.own_generation(index, encoder=encoder, wanted=wanted)
    with run.follow(
      index, refresh=pretraining.refresh, wanted=wanted, spread=pretraining.spread_index
    ) as refresher:
      if not refresher.first(wanted=wanted, stop=run.stopped):
        return
      retriever = Retriever(
        encode_query=run.query_encoder(encoder),
        searcher=refresher.current.searcher,
        store=store,
        config=pretraining.retrieval,
      )
      source = run.retrieved_batches(
        features,
        functools.partial(batches.counted_queries, num_streams=features.num_own),
        retriever=retriever,
        refresher=refresher,
      )
      validation = None
      if eval_corpus is not None:
        validation = FixedValidation(
          pretraining,
          dataclasses.replace(examples, source=eval_corpus),
          store=store,
          retriever=retriever,
          refresher=refresher,
          put_on_devices=run.put_on_devices,
        )
      run.train(
        source,
        validation=validation,
        samples=lambda: retrieved_samples(source.batch, tokenizer=store.vocabulary, store=store),
      )
    swapped = f"{refresher.swaps} generations swapped in"
    print(f"{workdir}: step {run.step}, {swapped}{run.best_found}", flush=True)
