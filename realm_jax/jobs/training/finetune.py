"""Fine-tunes retriever and span reader to answer questions from the knowledge corpus."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator
from typing import Literal

import jax

from realm_jax import partitioning, wordpieces
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import batches, prepared_examples
from realm_jax.data.questions import read_questions
from realm_jax.index import generations
from realm_jax.labels.answer_matching import AnswerMatcher
from realm_jax.labels.question_labels import find_labels
from realm_jax.models.open_qa import OpenQaModel
from realm_jax.retrieval.index_refresher import IndexRefresher, RefreshConfig
from realm_jax.retrieval.question_retriever import BeamConfig, QuestionRetriever, Questions
from realm_jax.retrieval.retrieved_batches import RetrievedBatches
from realm_jax.runs import objectives, starting_points
from realm_jax.runs.example_sources import QuestionExamples
from realm_jax.runs.question_evaluation import QuestionEvaluation
from realm_jax.runs.training_run import TrainingRun
from realm_jax.saved import saved_models
from realm_jax.saved.question_setup import EmbeddedGenerations, query_encoder
from realm_jax.saved.retrieval_setup import PublishedGenerations, SwapLog
from realm_jax.training.best_checkpoint import BestCheckpoint
from realm_jax.training.optimizer import OptimizerConfig

BEST = "best"


def finetune(
  *,
  workdir: str,
  questions: str,
  examples: str | None = None,
  passages: str,
  index: str,
  retriever: str,
  reader: str,
  dev_questions: str | None = None,
  passage_encoder: Literal["frozen", "trained"] = "frozen",
  beam: BeamConfig = BeamConfig(),
  max_span_width: int = 10,
  span_hidden_size: int = 256,
  temperature: float | None = None,
  answer_rule: Literal["words", "original"] = "words",
  answer_text: Literal["raw", "spaced"] = "raw",
  refresh: RefreshConfig = RefreshConfig(),
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-5, num_steps=160_000),
  num_steps: int = 160_000,
  batch_size: int = 16,
  query_length: int = 64,
  generation: int | None = None,
  best_metric: str = "exact_match",
  max_dev_questions: int | None = None,
  eval_every: int = 1000,
  seed: int = 0,
  data_streams: int | None = None,
  accumulate_steps: int = 1,
  model_parallel: int = 1,
  layout: partitioning.Layout = "replicated",
  log_every: int = 100,
  checkpoint_every: int = 1000,
  keep_checkpoints: int = 5,
) -> None:
  """Trains on questions and answers alone; which passage answers is found out (Lee et al. 2019).

  Args:
    workdir: directory of the run; a run that is there is continued. `WORKDIR/best` holds the
      checkpoint that answered the dev questions best.
    questions: JSON Lines with `question` and `answer`, see docs/open_qa.md.
    examples: directory of examples made of them by `realm prepare_examples`; none: they are made
      while training.
    passages: directory of the knowledge corpus, from `realm prepare_corpus`.
    index: directory of the index generations, from `realm build_index` with the retriever's
      checkpoint; with a trained passage encoder, from this run's checkpoints as they come.
    retriever: checkpoints that the dual encoder begins with.
    reader: checkpoints that the span reader begins with: its span reader if it has one, else its
      knowledge-augmented encoder, else the BERT of its dual encoder.
    dev_questions: questions asked while training; none: no evaluation.
    passage_encoder: "frozen", as published: the query encoder alone learns to retrieve; or
      "trained": the passages read are embedded afresh in every step, and the index follows.
    beam: how many passages are found and read.
    max_span_width: wordpieces of an answer at most.
    span_hidden_size: width of the MLP that scores spans.
    temperature: scores are divided by it; none: as in the retriever's checkpoint. Embeddings of
      unit length need one far below 1, or all passages are alike to the softmax.
    answer_rule: "words" labels retriever and reader by one rule; "original" as the released ORQA.
    answer_text: "raw" slices answers from the passage; "spaced" as the released ORQA.
    refresh: how new generations are followed, with a trained passage encoder.
    optimizer: its settings; its schedule should have `num_steps`.
    num_steps: steps of the whole run.
    batch_size: questions a step; 1 as published.
    query_length: wordpieces of a question; longer ones lose their end.
    generation: index generation to stay with; none: the newest, and with a trained passage encoder
      each that follows.
    best_metric: the dev figure that chooses the best checkpoint.
    max_dev_questions: of more dev questions, so many are drawn; none: all are asked.
    eval_every: steps between two evaluations.
    seed: of new parameters, data order and dropout.
    data_streams: parts of the questions read side by side, see docs/several_processes.md; none: one
      a process.
    accumulate_steps: parts of a batch computed one after the other.
    model_parallel: devices that share one copy of the model.
    layout: "replicated", or "fully_sharded" over the devices.
    log_every: steps between two writes of metrics.
    checkpoint_every: steps between two checkpoints.
    keep_checkpoints: checkpoints kept, the best one aside.

  Raises:
    FileNotFoundError: if a corpus, an index or a checkpoint is missing.
    ValueError: if they do not fit each other, or no question has its answer in the corpus.
  """
  if dev_questions is not None and jax.process_count() > 1:
    raise ValueError(
      f"dev_questions={dev_questions} with {jax.process_count()} processes; dev questions are "
      "asked by one: leave them out and follow the checkpoints with `realm evaluate`"
    )
  if passage_encoder == "trained" and generation is None:
    refresh.check_reachable(checkpoint_every=checkpoint_every)
  store = PassageStore(passages)
  vocabulary = wordpieces.load(os.path.join(passages, "vocabulary"))
  start = starting_points.find(
    retriever=retriever,
    reader=reader,
    passage_encoder=passage_encoder,
    max_span_width=max_span_width,
    span_hidden_size=span_hidden_size,
    temperature=temperature,
  )
  saved_models.check_warm_starts([retriever, reader], vocabulary)
  saved_models.check_sizes(
    vocabulary,
    {"dual_encoder": start.dual_encoder.bert, "span_reader": start.span_reader.bert},
    {
      "dual_encoder": {"query_length": query_length, "passage_length": start.passage_length},
      "span_reader": {"joint_length": beam.joint_length},
    },
  )
  asked = read_questions(questions)
  made_of = QuestionExamples.of(
    asked,
    source=questions if examples is None else examples,
    store=store,
    query_length=query_length,
    answer_rule=answer_rule,
  )
  features = batches.Streams(
    functools.partial(made_of.open, seed=seed, training=True),
    num_streams=data_streams,
    batch_size=batch_size,
  )
  if examples is None:
    matcher = find_labels(
      asked, questions=questions, store=store, answer_rule=answer_rule, query_length=query_length
    )
  else:
    matcher = AnswerMatcher.from_arrays(prepared_examples.read_arrays(examples))
  model = OpenQaModel(start.dual_encoder, start.span_reader)

  frozen = passage_encoder == "frozen"
  if frozen:
    optimizer = dataclasses.replace(
      optimizer, frozen_parts=(*optimizer.frozen_parts, "dual_encoder/passage_tower")
    )
  description = saved_models.ModelDescription(
    dual_encoder=start.dual_encoder,
    span_reader=start.span_reader,
    beam=beam,
    query_length=query_length,
    passage_length=start.passage_length,
    vocabulary_digest=vocabulary.digest,
    corpus_fingerprint=store.fingerprint,
  )
  # What is in flight names questions by their positions.
  question_digests = [made_of.questions_digest, made_of.answers_digest]
  metadata = {"model": description.to_json(), "questions": question_digests}
  with contextlib.ExitStack() as stack:
    run = stack.enter_context(
      TrainingRun(
        workdir=workdir,
        init_params=functools.partial(saved_models.init_open_qa_model, model),
        objective=objectives.questions(model),
        optimizer=optimizer,
        warm_starts=start.warm_starts,
        seed=seed,
        accumulate_steps=accumulate_steps,
        model_parallel=model_parallel,
        layout=layout,
        keep_checkpoints=keep_checkpoints,
      )
    )
    if run.resumed is None:
      if not frozen:
        # What the index builder makes the first generation from.
        run.save(0, run.state, input={}, metadata=metadata)
    else:
      saved_models.check_same_run(run.resumed.metadata, description, workdir)
      if run.resumed.metadata.get("questions") != question_digests:
        raise ValueError(
          f"{workdir} was trained on other questions than {questions}; continue with the same "
          "file, or choose another workdir"
        )
    if frozen:
      generation = _frozen_generation(run, index, generation)
    if num_steps == 0:
      run.wait_for_checkpoint()
      return
    published = PublishedGenerations(
      index,
      description=description,
      run=run.identity,
      other_runs=refresh.other_runs if generation is None else "accept",
    )
    refresher = stack.enter_context(
      IndexRefresher(
        EmbeddedGenerations(index, published=published),
        config=refresh,
        watch=generation is None,
      )
    )
    if not refresher.first(wanted=generation, stop=run.stopped):
      return
    encode_query = query_encoder(start.dual_encoder, run.place, sharding=run.batch_sharding)
    question_retriever = QuestionRetriever(
      encode_query=encode_query,
      loaded=refresher.current,
      store=store,
      config=beam,
      max_span_width=start.span_reader.max_span_width,
      matcher=matcher,
      fresh_passage_length=None if frozen else start.passage_length,
    )
    swaps = SwapLog(run.logs, step=run.step)
    swaps.write(run.step, refresher.current)
    source = RetrievedBatches(
      _questions(features),
      retriever=question_retriever,
      refresher=refresher,
      place=run.place,
      first_step=run.step,
      on_swap=swaps.write,
      stop=run.stopped,
    )
    evaluation = best = None
    if dev_questions is not None:
      # Answers are given as text, which needs TensorFlow.
      from realm_jax import tokenization

      evaluation = QuestionEvaluation(
        dev_questions,
        max_questions=max_dev_questions,
        model=model,
        description=description,
        store=store,
        tokenizer=tokenization.load(os.path.join(passages, "vocabulary")),
        generation=lambda: refresher.current,
        place=run.place,
        encode_query=encode_query,
        batch_size=batch_size,
        answer_rule=answer_rule,
        answer_text=answer_text,
      )
      evaluation.check_metric(best_metric)
      best = stack.enter_context(
        BestCheckpoint(os.path.join(workdir, BEST), metric=f"dev/{best_metric}")
      )
    run.train(
      run.first_batch(source, features),
      source=source,
      num_steps=num_steps,
      log_every=log_every,
      checkpoint_every=checkpoint_every,
      input=lambda: {"position": features.position(), "batch": source.in_flight()},
      metadata=lambda: {
        **metadata,
        "generation": refresher.current.generation,
      },
      evaluate=evaluation,
      eval_every=eval_every,
      samples=None if evaluation is None else evaluation.samples,
      best=best,
    )
    at_best = f", best dev {best_metric} {best.value:.4f} at step {best.step}" if best else ""
    print(f"{workdir}: step {run.step}{at_best}", flush=True)


def _frozen_generation(run: TrainingRun, index: str, generation: int | None) -> int:
  """Returns the generation to stay with, made by the very passage encoder that stands still.

  Raises:
    FileNotFoundError: if there is none.
    ValueError: if it was made by another model.
  """
  if generation is None and run.resumed is not None:
    generation = run.resumed.metadata["generation"]
  if generation is None:
    generation = generations.newest(index)
  if generation is None:
    raise FileNotFoundError(
      f"no index generation in {index}; make one of the retriever's checkpoint with "
      "`realm build_index`"
    )
  digest = saved_models.params_digest(run.state.params["dual_encoder"]["passage_tower"])
  manifest = generations.read_manifest(index, generation)
  if manifest.parameters_digest != digest:
    raise ValueError(
      f"generation {generation} in {index} was made by another passage encoder "
      f"({manifest.parameters_digest}, not {digest}), at step {manifest.training_step}; make an "
      "index of the retriever's checkpoint with `realm build_index`, or name its generation"
    )
  return generation


def _questions(features: batches.Streams) -> Iterator[tuple[Questions, dict]]:
  for batch in features:
    query = batches.tokens(batch["query"])
    yield (
      Questions(
        query=query,
        index_B=batch["question_index"][:, 0].astype("int32"),
        weights_B=query.mask.any(axis=1).astype("float32"),
      ),
      {},
    )
