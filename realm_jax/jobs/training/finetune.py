"""Fine-tunes a retriever and a span reader to answer questions from the knowledge corpus."""

import jax

from realm_jax.answering.open_answerer import question_model
from realm_jax.checkpoints.opening import open_corpus
from realm_jax.data import batches
from realm_jax.data.questions import read_questions
from realm_jax.evaluation.answer_matching import find_labels, warn_of_wide_answers
from realm_jax.models.open_qa import OpenQaModel
from realm_jax.retrieval.question_retriever import QuestionRetriever
from realm_jax.training.recipes.examples import question_examples
from realm_jax.training.recipes.finetuning import Finetuning, QuestionValidation
from realm_jax.training.run.starts import Starts
from realm_jax.training.run.training_run import TrainingRun


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
  asked, encoder, data = read_questions(questions), begun.dual_encoder, finetuning.data
  made = question_examples(asked, data=data, source=examples or questions, store=store)
  features = made.streams(seed=finetuning.run.seed)
  matcher = find_labels(
    asked, file=questions, store=store, query_length=data.query_length, prepared=examples
  )
  warn_of_wide_answers(asked, matcher, max_span_width=begun.span_reader.max_span_width)
  model = OpenQaModel(encoder, begun.span_reader)
  with TrainingRun(
    workdir,
    program=finetuning.program(model, lengths=store.length_quantiles()),
    config=finetuning,
    description=description,
    batch_settings=made.batch_settings(seed=finetuning.run.seed),
    starts=begun.starts,
  ) as run:
    run.keep(store.vocabulary)
    if not finetuning.frozen:
      run.save_start()
    if finetuning.run.num_steps == 0:
      return
    wanted = finetuning.generation
    if finetuning.frozen:
      wanted = run.own_generation(index, encoder=encoder, wanted=wanted)
    with run.follow(
      index, refresh=finetuning.refresh, wanted=wanted, with_embeddings=True
    ) as refresher:
      if not refresher.first(wanted=wanted, stop=run.stopped):
        return
      question_retriever = QuestionRetriever(
        encode_query=run.query_encoder(encoder),
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
      dev = dev_questions and QuestionValidation(
        dev_questions,
        config=finetuning.dev,
        model=question_model(description, params={}, put_on_devices=run.put_on_devices),
        store=store,
        loaded=lambda: refresher.current,
        passage_length=begun.passage_length,
        batch_size=data.batch_size,
        stop=run.stopped,
      )
      run.train(source, validation=dev or None)
    print(f"{workdir}: step {run.step}{run.best_found}", flush=True)
