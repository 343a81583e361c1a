"""Fine-tunes a retriever and a span reader to answer questions from the knowledge corpus."""

import contextlib
import os
from collections.abc import Sequence

import jax

from realm_jax.answering.open_answerer import question_model
from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.opening import generation_made_by, open_corpus
from realm_jax.checkpoints.orbax_files import BEST, BestCheckpoint
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches, prepared_examples
from realm_jax.data.questions import Question, read_questions
from realm_jax.evaluation.answer_matching import (
  AnswerMatcher,
  find_labels,
  warn_of_wide_answers,
)
from realm_jax.models.encoder import EncoderConfig, query_encoder
from realm_jax.models.open_qa import OpenQaModel
from realm_jax.retrieval.question_retriever import QuestionRetriever
from realm_jax.training.examples import QuestionData, question_examples
from realm_jax.training.finetuning import Finetuning, QuestionEvaluation
from realm_jax.training.starts import Starts
from realm_jax.training.training_run import Evaluation, TrainingRun


def finetune(
  *,
  workdir: str,
  questions: str,
  examples: str | None = None,
  passages: str,
  index: str,
  start: Starts,
  dev_questions: str | None = None,
  finetuning: Finetuning = Finetuning(),
) -> None:
  """Trains on questions and answers; the passages are found automatically (Lee et al. 2019).

  Args:
    workdir: Directory of the run; an existing run is resumed. `WORKDIR/best` gets the checkpoint
      that is best on the dev questions.
    questions: JSON Lines with `question` and `answer`, see docs/open_qa.md.
    examples: Directory of the questions prepared by `realm prepare_examples`; None makes examples
      while training.
    passages: Directory of the knowledge corpus, from `realm prepare_corpus`.
    index: Directory of the index generations, from `realm build_index` with the retriever's
      checkpoint or, if the passage encoder is trained, following this run's checkpoints.
    start: Checkpoints of the dual encoder and the span reader; or CHECKPOINTS:dual_encoder and, in
      another flag, CHECKPOINTS:span_reader. It begins with their span reader if they have one, else
      with their knowledge-augmented encoder, else with the BERT of their dual encoder.
    dev_questions: Questions to evaluate on during training; None disables evaluation.
    finetuning: The configuration of the training.

  Raises:
    FileNotFoundError: If a corpus, an index or a checkpoint is missing.
    ValueError: If they do not match each other, or no question has its answer in the corpus.
  """
  if dev_questions is not None and jax.process_count() > 1:
    raise ValueError(
      f"dev_questions={dev_questions} with {jax.process_count()} processes; dev questions need a "
      "single process: omit them, and run `realm evaluate` on the checkpoints"
    )
  begun = finetuning.model.find(start)
  store = open_corpus(passages, starts=[each.checkpoints for each in begun.starts])
  finetuning.check_reachable()
  description = finetuning.describe(store, begun)
  description.check_sizes(store.vocabulary)
  train_questions = read_questions(questions)
  made = question_examples(
    train_questions,
    data=finetuning.data,
    source=questions if examples is None else examples,
    store=store,
  )
  features = made.streams(seed=finetuning.run.seed)
  matcher = _labels(train_questions, questions, examples, store=store, data=finetuning.data)
  warn_of_wide_answers(train_questions, matcher, max_span_width=begun.span_reader.max_span_width)
  encoder = begun.dual_encoder
  model = OpenQaModel(encoder, begun.span_reader)
  with contextlib.ExitStack() as stack:
    run = stack.enter_context(
      TrainingRun(
        workdir,
        program=finetuning.program(model, lengths=store.length_quantiles()),
        config=finetuning,
        description=description,
        batch_settings=made.batch_settings(seed=finetuning.run.seed),
        starts=begun.starts,
      )
    )
    run.keep(store.vocabulary)
    if not finetuning.frozen:
      run.save_start()
    if finetuning.run.num_steps == 0:
      return
    wanted = _wanted(run, finetuning, index, encoder=encoder)
    refresher = stack.enter_context(
      run.follow(index, refresh=finetuning.refresh, wanted=wanted, with_embeddings=True)
    )
    if not refresher.first(wanted=wanted, stop=run.stopped):
      return
    question_retriever = QuestionRetriever(
      encode_query=query_encoder(encoder, run.put_on_devices, sharding=run.batch_sharding),
      loaded=refresher.current,
      store=store,
      config=finetuning.beam,
      max_span_width=begun.span_reader.max_span_width,
      matcher=matcher,
      fresh_passage_length=None if finetuning.frozen else begun.passage_length,
    )
    source = run.retrieved_batches(
      features,
      lambda batch: (batches.questions(batch), {}),
      retriever=question_retriever,
      refresher=refresher,
    )
    evaluation = dev = None
    if dev_questions is not None:
      dev = QuestionEvaluation(
        dev_questions,
        config=finetuning.dev,
        model=question_model(description, params={}, put_on_devices=run.put_on_devices),
        store=store,
        loaded=lambda: refresher.current,
        passage_length=begun.passage_length,
        batch_size=finetuning.data.batch_size,
        stop=run.stopped,
      )
      best = BestCheckpoint(os.path.join(workdir, BEST), metric=dev.metric, measured_on=dev.digest)
      evaluation = Evaluation(
        metrics=dev, every=finetuning.dev.eval_every, best=stack.enter_context(best)
      )
    run.train(
      source,
      metadata=lambda: {"generation": refresher.current.generation},
      evaluation=evaluation,
      samples=dev and dev.samples,
    )
    at_best = f", best {dev.metric} {best.value:.4f} at step {best.step}" if dev else ""
    print(f"{workdir}: step {run.step}{at_best}", flush=True)


def _labels(
  questions: Sequence[Question],
  file: str,
  examples: str | None,
  *,
  store: PassageStore,
  data: QuestionData,
) -> AnswerMatcher:
  """Finds where the answers occur, or reads the labels from prepared examples."""
  if examples is not None:
    return AnswerMatcher.from_arrays(prepared_examples.read_arrays(examples))
  return find_labels(
    questions,
    file=file,
    store=store,
    query_length=data.query_length,
  )


def _wanted(
  run: TrainingRun, finetuning: Finetuning, index: str, *, encoder: EncoderConfig
) -> int | None:
  """Returns the generation to stay with; None follows the newest."""
  wanted = finetuning.generation
  if not finetuning.frozen:
    return wanted
  if wanted is None and run.resumed is not None:
    wanted = run.resumed.metadata["generation"]
  digest = saved_models.passages_digest(encoder, run.state.params["dual_encoder"])
  return generation_made_by(digest, index, generation=wanted)
