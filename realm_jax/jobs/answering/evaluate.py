"""Evaluates a checkpoint, BM25 or a file of predictions on questions with known answers."""

import os
from collections.abc import Sequence

from realm_jax.checkpoints.opening import Sources
from realm_jax.evaluation import result_card, run_comparison
from realm_jax.evaluation.following import Following
from realm_jax.evaluation.open_questions import Format
from realm_jax.evaluation.question_files import QuestionFiles
from realm_jax.evaluation.systems import Asking, open_system, question_sets
from realm_jax.foundations import choices


def evaluate(
  *,
  questions: str,
  qrels: str | None = None,
  sources: Sources = Sources(),
  asking: Asking = Asking(),
  following: Following = Following(),
  predictions: str | None = None,
  train_questions: str | None = None,
  output: str | None = None,
  formats: Sequence[Format] = (),
  max_questions: choices.Count | None = None,
  against: str | None = None,
) -> dict:
  """Answers questions or fills masks, and scores the answers against the references.

  A checkpoint of `realm finetune` answers questions, and one of `realm pretrain` fills masks; all
  others and BM25 only retrieve. The printed card, also written to `output`, records what was
  measured.

  Args:
    questions: JSON Lines of questions (`question`, `answer`), or of masked sentences (`text`,
      `spans`, `answer`) as `realm mask_sentences` writes; with `qrels`, of queries (`_id`, `text`).
      Several sets, `nq=FILE,wq=FILE`, are put to one system and written to `output/nq` and so on.
    qrels: Judgements of a retrieval test collection, in BEIR's or TREC's format: documents are
      ranked, each by its best passage, and scored by nDCG, recall and reciprocal rank.
    sources: The model, the corpus and its index; BM25 needs only the corpus.
    asking: How questions are asked.
    following: Whether to follow a training. Then `output` gets `evaluations.jsonl`, a line with
      step, generation and metrics for each generation. Generations that appear faster than they can
      be evaluated are skipped, and so are those whose checkpoint is already deleted. A restart
      continues after the last line.
    predictions: A file of predictions to score instead of a model's.
    train_questions: The training questions, to tell answers seen in training from others.
    output: Directory for `figures.json`, `card.md` and `predictions.jsonl`; None only prints.
    formats: Also writes the retrieved passages, as "dpr" (Dense Passage Retrieval's JSON, with all
      texts) or "trec" (a run file).
    max_questions: Samples at most this many, always the same ones; None uses all.
    against: The output directory of another system's evaluation on the same questions, to compare
      with question by question: differences, their 95 % intervals and p (docs/evaluation.md).

  Returns:
    The metrics, overall and by group, or those of each set by name; of the last generation if a
    training is followed.
  """
  if output is not None:
    result_card.EVALUATION.check(output)
  if output is None and (formats or against):
    raise ValueError("--formats and --against need a directory; give --output")
  if predictions and sources != Sources():
    raise ValueError(
      "--predictions are scored without a system; omit --checkpoints, --passages, --index, "
      "--retriever and their settings"
    )
  if following.follow and not (sources.checkpoints and sources.index and output):
    raise ValueError("--follow needs --checkpoints and --index of a training, and --output")
  fixed = {"predictions": predictions, "against": against, "formats": formats or None}
  fixed |= {"step": sources.step, "generation": sources.generation}
  if following.follow and (given := [f"--{k}" for k, v in fixed.items() if v is not None]):
    raise ValueError(f"--follow evaluates each new generation; omit {', '.join(given)}")
  if following.until_step is not None and not following.follow:
    raise ValueError(f"until_step={following.until_step} needs --follow=true")
  if against is not None:
    run_comparison.sets_of(against)  # not after hours of evaluation

  files = QuestionFiles(
    qrels=qrels,
    asking=asking,
    max_questions=max_questions,
    train_questions=train_questions,
    formats=formats,
  )
  evaluators = {name: files.open(file) for name, file in question_sets(questions).items()}

  def evaluated(of: Sources, output: str | None) -> dict:
    """Opens the system once for all sets; returns the metrics, by set if there are several."""
    system = None if predictions else open_system(of, asking)
    found = {}
    for name, evaluator in evaluators.items():
      result = evaluator.evaluate(system) if system else evaluator.read(str(predictions))
      directory = output and os.path.join(output, name)
      found[name] = result_card.publish(result, inputs=evaluator.inputs, output=directory)
    return found.get("", found)

  if output is None or not following.follow:
    found = evaluated(sources, output)
    if output is not None and against is not None:
      print(run_comparison.compare(output, against), flush=True)
    return found
  return following.evaluate(lambda of: evaluated(of, None), sources, output=output)
