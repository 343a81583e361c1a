"""Four passages, and a predictor with given answers."""

import numpy as np
import pytest

from realm_jax.answering.span_reader import QuestionAnswers, SpanAnswer
from realm_jax.data.questions import Question
from realm_jax.devices.datatypes import SearchResults
from realm_jax.evaluation.answer_matching import match_answers
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from tests.stores import write_store

TOKENIZER = WordPieceTokenizer(
  [*SPECIAL_TOKENS, *"paris is in france oslo norway rome . u s".split()]
)
TEXTS = ("Paris is in France.", "Oslo is in Norway.", "Rome.", "France is in Norway.")


class ToldRetriever:
  """Finds given passages."""

  def __init__(self, found: dict[str, list[int]]):
    self._found = found

  def retrieve(self, questions, *, k):
    ids_BxK = np.full((len(questions), k), -2, np.int32)
    for row, question in enumerate(questions):
      ids = self._found[question][:k]
      ids_BxK[row, : len(ids)] = ids
    scores_BxK = np.where(ids_BxK >= 0, 9.5 - np.arange(k, dtype=np.float32), -np.inf)
    return SearchResults(ids_BxK, scores_BxK)


class ToldPredictor(ToldRetriever):
  """Reads the best passage, and gives given answers."""

  def __init__(self, found, said):
    super().__init__(found)
    self._said = said

  def answer(self, questions, *, num_answers=1):
    return [
      QuestionAnswers(
        question=question,
        answers=tuple(_answer(text) for text in self._said[question][:num_answers]),
        passage_ids=tuple(self._found[question][:1]),
        titles=("",),
        scores=(9.5,),
        retrieval_probabilities=(1.0,),
        truncated=False,
      )
      for question in questions
    ]


def _answer(text):
  return SpanAnswer(
    text=text,
    passage_id=0,
    title="",
    start_byte=0,
    limit_byte=len(text),
    start_char=0,
    limit_char=len(text),
    probability=0.5,
    retrieval_probability=0.5,
    reader_probability=1.0,
  )


@pytest.fixture(scope="session")
def told():
  """`told(found)` or `told(found, said)` makes a retriever or a predictor with these results."""
  return lambda found, said=None: ToldPredictor(found, said) if said else ToldRetriever(found)


@pytest.fixture(scope="session")
def ask():
  """`ask(text, *answers, ...)` makes a question."""
  return lambda text, *answers, **fields: Question(id=text, text=text, answers=answers, **fields)


@pytest.fixture(scope="session")
def store(tmp_path_factory):
  passages = [{"title": f"title {row}", "text": text} for row, text in enumerate(TEXTS)]
  return write_store(tmp_path_factory.mktemp("store"), passages, tokenizer=TOKENIZER)


@pytest.fixture(scope="session")
def match(store):
  """`match(questions)` looks for their answers in the passages."""
  return lambda questions: match_answers(questions, store=store)
