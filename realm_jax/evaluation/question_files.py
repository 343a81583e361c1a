"""Opens files of questions, each as the evaluator of its kind."""

import dataclasses
from collections.abc import Sequence

from realm_jax.data.questions import read_judgements, read_queries, read_questions, sampled
from realm_jax.evaluation.document_ranking import JudgedQueries
from realm_jax.evaluation.masked_sentences import MaskedSentences
from realm_jax.evaluation.open_questions import Format, OpenQuestions
from realm_jax.evaluation.systems import Asking, Evaluator
from realm_jax.foundations import choices


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionFiles(choices.Checked):
  """How files of questions are read and asked; see `realm evaluate`."""

  qrels: str | None
  asking: Asking
  max_questions: choices.Count | None
  train_questions: str | None
  formats: Sequence[Format]

  def open(self, file: str) -> Evaluator:
    """Returns the queries with judgements, masked sentences or questions of a file."""
    asking, most = self.asking, self.max_questions
    asked = [] if self.qrels is not None else sampled(read_questions(file), most)
    is_masked = bool(asked) and asked[0].span is not None
    if asking.book == "closed" and not is_masked:
      raise ValueError(f"book=closed is for masked sentences, but {file} has none; omit it")
    if self.qrels is not None:
      grades = read_judgements(self.qrels)
      queries = sampled(read_queries(file, grades), most)
      inputs = {"queries": file, "judgements": self.qrels}
      grades = {query.id: grades[query.id] for query in queries}
      return JudgedQueries(inputs=inputs, questions=queries, grades=grades, asking=asking)
    if is_masked:
      return MaskedSentences(inputs={"masked sentences": file}, questions=asked, asking=asking)
    answers = None
    if self.train_questions is not None:
      known = read_questions(self.train_questions)
      answers = [answer for question in known for answer in question.answers]
    return OpenQuestions(
      inputs={"questions": file},
      questions=asked,
      asking=asking,
      train_answers=answers,
      formats=self.formats,
    )
