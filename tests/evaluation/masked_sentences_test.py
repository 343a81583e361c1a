import dataclasses

import numpy as np

from realm_jax.answering.mask_filler import FilledMask
from realm_jax.data.question_batches import masked_query_batches
from realm_jax.data.questions import Question
from realm_jax.devices.datatypes import SearchResults
from realm_jax.evaluation.masked_sentences import predict, rank_passages, scores
from realm_jax.evaluation.result_card import Evaluated
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

TOKENIZER = WordPieceTokenizer(
  [*SPECIAL_TOKENS, *"the is of old pound euro zur ##ich oslo .".split()]
)
PASSAGES = ("The pound is of old.", "Oslo is old. The euro is old.", "Zürich is the Euro.")


@dataclasses.dataclass(frozen=True)
class Told:
  """The result of the predictor below for a question."""

  question: Question
  answer: str
  closed_book_answer: str
  retrieved: tuple[int, ...]


def told(text, answer, said, *, closed="of", retrieved, passage="", group=""):
  start = text.encode().index(answer.encode())
  span = (start, start + len(answer.encode()))
  question = Question(
    id=text, text=text, span=span, answers=(answer,), passage=passage, group=group
  )
  return Told(question, said, closed, retrieved)


TOLD = (
  told("Pound is old.", "Pound", "pound", retrieved=(2, 0), passage=PASSAGES[0], group="real"),
  told("Zürich is old.", "Zürich", "Zürich", retrieved=(1, -2), passage=PASSAGES[2], group="real"),
  # One of two wordpieces is wrong; the answer is retrieved, but not the sentence that is wanted.
  told("The Zürich.", "Zürich", "zur old", retrieved=(2, 1), passage=PASSAGES[0], group="made"),
  told("Oslo.", "Oslo", "euro", closed="oslo", retrieved=(1, 2), passage="Oslo is old."),
  told("Of euro.", "euro", "euro", retrieved=(-2, 2)),  # no passage is known: any with the answer
  # Longer than what is asked for: never exact.
  told(
    "The pound is of old.", "pound is of old", "pound is of", retrieved=(0, 1), passage=PASSAGES[0]
  ),
)


class Filler:
  """Returns the given results in the order of the questions."""

  class corpus:
    class store:
      text = dict(enumerate(PASSAGES)).__getitem__

    tokenizer = TOKENIZER

  def __init__(self):
    self._filled = self._retrieved = 0
    self.trivial = []

  def fill(self, queries, *, texts, without_retrieval, trivial, num_extra):
    assert num_extra == 1
    self.trivial = [*self.trivial, *trivial(np.array([[0, 1, 2, -2]] * 2)).tolist()]
    rows = int((queries.mlm_weights_BxM.sum(axis=1) > 0).sum())
    asked = TOLD[self._filled : self._filled + rows]
    self._filled += rows
    said = [t.closed_book_answer if without_retrieval else t.answer for t in asked]
    answers = [FilledMask(tuple(TOKENIZER.encode(text).tolist()), 0.25) for text in said]
    return answers + [FilledMask((), 1.0)] * (2 - rows)

  def retrieve(self, queries, *, k, texts):
    assert k == 2
    assert all("[MASK]" in text for text in texts)
    rows = int((queries.mlm_weights_BxM.sum(axis=1) > 0).sum())
    asked = TOLD[self._retrieved : self._retrieved + rows]
    self._retrieved += rows
    return np.array([t.retrieved for t in asked] + [(0, 1)] * (2 - rows))


def run(*, filler=None, without_retrieval=False):
  batches = masked_query_batches(
    [t.question for t in TOLD], tokenizer=TOKENIZER, query_length=10, max_masks=3, batch_size=2
  )
  return predict(
    filler or Filler(), batches, retrieve_k=2, num_extra=1, without_retrieval=without_retrieval
  )


def figures(predictions, *, recall_at):
  found, questions = scores(predictions, recall_at=recall_at), [p.question for p in predictions]
  return Evaluated(measured={}, scores=found, questions=questions).summary()


SAID = ["pound", "zurich", "zur old", "euro", "euro", "pound is of"]


def test_each_question_has_one_prediction_in_order():
  predictions = run()
  assert [p.question for p in predictions] == [t.question for t in TOLD]
  assert [p.prediction for p in predictions] == SAID
  assert [p.exact_match for p in predictions] == [True, True, False, False, True, False]
  assert [p.rank for p in predictions] == [2, None, None, 1, 2, 1]
  assert {p.probability for p in predictions} == {0.25}


def test_figures_are_means_over_all_and_over_each_group():
  assert figures(run(), recall_at=(1, 2)) == {
    "questions": 6,
    "recall@1": 0.3333,
    "recall@2": 0.6667,
    "exact_match": 0.5,
    "groups": {
      "made": {"questions": 1, "recall@1": 0.0, "recall@2": 0.0, "exact_match": 0.0},
      "real": {"questions": 2, "recall@1": 0.0, "recall@2": 0.5, "exact_match": 1.0},
    },
  }


def test_without_a_reader_only_passages_are_ranked():
  asked = [t.question for t in TOLD[:3]]
  ids = np.array([t.retrieved for t in TOLD[:3]])
  found = SearchResults(ids, np.zeros(ids.shape))
  ranked = rank_passages(lambda texts, k: found, asked, text=PASSAGES.__getitem__, k=2)
  assert [p.rank for p in ranked] == [2, None, None]
  assert figures(ranked, recall_at=(2,)).keys() == {"questions", "recall@2", "groups"}


def rank(passages, text="Oslo is in Norway.", answer="Oslo"):
  found = SearchResults(np.arange(len(passages))[None], np.zeros((1, len(passages))))
  asked = told(text, answer, "", retrieved=()).question
  (ranked,) = rank_passages(lambda texts, k: found, [asked], text=passages.__getitem__, k=9)
  return ranked.rank


def test_a_passage_with_the_masked_sentence_itself_is_not_read():
  run(filler=(filler := Filler()))
  given_away = {
    told.question.text: any(row) for told, row in zip(TOLD, filler.trivial, strict=True)
  }
  # Where the sentence that states the fact is known, it is what should be read.
  assert given_away == dict.fromkeys(given_away, False)
  asked = [told("The euro is old.", "euro", "", retrieved=()).question]
  (batch,) = masked_query_batches(
    asked, tokenizer=TOKENIZER, query_length=10, max_masks=3, batch_size=2
  )
  predict(filler := Filler(), [batch], retrieve_k=2, num_extra=1, without_retrieval=False)
  assert filler.trivial == [[False, True, False, False], [False] * 4]


def test_a_passage_with_the_masked_sentence_itself_has_no_rank():
  assert rank(("Rome.", "It says: Oslo is in Norway. So.", "Oslo.")) == 2
  assert rank(("It says: Oslo is in Norway. So.",)) is None


def test_a_passage_has_the_answer_only_as_whole_words():
  assert rank(("Oslofjord", "In Oslo!")) == 2
