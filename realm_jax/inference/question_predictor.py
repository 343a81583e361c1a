"""Answers questions: retrieves, reads, and slices the answers out of the passages' raw text."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np

from realm_jax import choices
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.corpus.wordpiece_offsets import body_offsets
from realm_jax.datatypes import RetrievedQuestions, SearchResults, Tokens
from realm_jax.index.searcher import Searcher
from realm_jax.inference.span_reading import SpanReading
from realm_jax.retrieval.question_retriever import QuestionRetriever, Questions
from realm_jax.wordpieces import Tokenizer

AnswerText = Literal["raw", "spaced"]
NUM_SPANS = 50  # looked at for a question; the same text in several places counts once
_NOTHING = -1e30  # log probability of spans that do not exist lies below
_WORDS = re.compile(r"\w+|[^\w\s]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanAnswer:
  """An answer and where it stands; bytes (UTF-8) and characters count from 0 in the passage's text.

  Attributes:
    text: the raw text there.
    passage_id: row of the store.
    title: of the passage.
    start_byte: first byte.
    limit_byte: byte after the last.
    start_char: first character.
    limit_char: character after the last.
    probability: p(y,z|x), in one softmax over all spans of all passages read; it decides.
    retrieval_probability: p(z|x), among the passages read.
    reader_probability: p(y|z,x), among the spans of the passage.
  """

  text: str
  passage_id: int
  title: str
  start_byte: int
  limit_byte: int
  start_char: int
  limit_char: int
  probability: float
  retrieval_probability: float
  reader_probability: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionAnswers:
  """The answers to a question, best first; none if no passage has a word.

  Attributes:
    question: as asked.
    answers: with different texts.
    passage_ids: the passages read, best first.
    titles: of these.
    scores: their retrieval scores.
    retrieval_probabilities: p(z|x) of each.
    truncated: whether the question was longer than the model and its end was not read.
  """

  question: str
  answers: tuple[SpanAnswer, ...]
  passage_ids: tuple[int, ...]
  titles: tuple[str, ...]
  scores: tuple[float, ...]
  retrieval_probabilities: tuple[float, ...]
  truncated: bool


def question_batches(
  texts: Sequence[str], *, tokenizer: Tokenizer, query_length: int, batch_size: int
) -> Iterator[tuple[Questions, np.ndarray]]:
  """Yields batches of questions, the last one filled up, with bool `[B]`: whether one was cut."""
  encoded = tokenizer.encode_batch(texts)
  room = query_length - 2
  for first in range(0, len(texts), batch_size):
    ids_BxL = np.zeros((batch_size, query_length), np.int32)
    ids_BxL[:, :2] = tokenizer.cls_id, tokenizer.sep_id
    rows = encoded[first : first + batch_size]
    for row, ids in enumerate(rows):
      kept = ids[:room]
      ids_BxL[row, 1 : 1 + len(kept)] = kept
      ids_BxL[row, 1 + len(kept)] = tokenizer.sep_id
    places = np.arange(batch_size)
    yield (
      Questions(
        query=Tokens(ids=ids_BxL, mask=ids_BxL != 0, segments=np.zeros_like(ids_BxL)),
        index_B=np.minimum(first + places, len(texts) - 1).astype(np.int32),
        weights_B=(places < len(rows)).astype(np.float32),
      ),
      np.array([len(ids) > room for ids in rows]),
    )


class QuestionSearch:
  """Finds passages for questions with a dual encoder and an index generation.

  Args:
    params: that `encode_query` takes.
    encode_query: jitted, `(params, Tokens [B, L]) -> [B, E]`.
    searcher: of the generation.
    tokenizer: of the model.
    query_length: L.
    batch_size: questions encoded at once.
  """

  def __init__(
    self,
    *,
    params: dict,
    encode_query: Callable,
    searcher: Searcher,
    tokenizer: Tokenizer,
    query_length: int,
    batch_size: int = 32,
  ):
    self._params = params
    self._encode_query = encode_query
    self._searcher = searcher
    self._tokenizer = tokenizer
    self._query_length = query_length
    self._batch_size = batch_size

  @property
  def generation(self) -> int:
    """Number of the index generation searched."""
    return self._searcher.generation

  def retrieve(self, questions: Sequence[str], *, k: int) -> SearchResults:
    """Returns the best `k` passages of each question, over the whole corpus."""
    parts = []
    for batch, cut in question_batches(
      questions,
      tokenizer=self._tokenizer,
      query_length=self._query_length,
      batch_size=self._batch_size,
    ):
      embeddings = np.asarray(self._encode_query(self._params, batch.query), np.float32)
      parts.append(self._searcher.search(embeddings[: len(cut)], k))
    return SearchResults(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


class QuestionPredictor:
  """Answers questions with one checkpoint and one index generation.

  Args:
    params: of the model.
    read: jitted, `(params, RetrievedQuestions) -> SpanReading`.
    retriever: finds the passages that are read.
    search: finds any number of passages.
    store: the knowledge corpus.
    tokenizer: of the model.
    query_length: L.
    batch_size: questions answered at once.
    answer_text: "raw" slices the passage's text; "spaced" puts one space between words and
      punctuation, as the released ORQA does.
  """

  def __init__(
    self,
    *,
    params: dict,
    read: Callable[[dict, RetrievedQuestions], SpanReading],
    retriever: QuestionRetriever,
    search: QuestionSearch,
    store: PassageStore,
    tokenizer: Tokenizer,
    query_length: int,
    batch_size: int = 32,
    answer_text: AnswerText = "raw",
  ):
    choices.check(AnswerText, answer_text=answer_text)
    self._params = params
    self._read = read
    self._retriever = retriever
    self._search = search
    self._store = store
    self._tokenizer = tokenizer
    self._query_length = query_length
    self._batch_size = batch_size
    self._answer_text = answer_text
    self._continues = np.array([piece.startswith("##") for piece in tokenizer.vocabulary])

  @property
  def generation(self) -> int:
    """Number of the index generation searched."""
    return self._search.generation

  def retrieve(self, questions: Sequence[str], *, k: int) -> SearchResults:
    """Returns the best `k` passages of each question, over the whole corpus."""
    return self._search.retrieve(questions, k=k)

  def answer(self, questions: Sequence[str], *, num_answers: int = 1) -> list[QuestionAnswers]:
    """Returns the best answers to each question."""
    found = []
    for batch, cut in question_batches(
      questions,
      tokenizer=self._tokenizer,
      query_length=self._query_length,
      batch_size=self._batch_size,
    ):
      retrieved, _ = self._retriever.finish(self._retriever.begin(self._params, batch))
      reading = self._read(self._params, retrieved)
      reading = SpanReading(
        *(np.asarray(getattr(reading, field.name)) for field in dataclasses.fields(SpanReading))
      )
      texts = questions[len(found) : len(found) + len(cut)]
      offsets = self._offsets(retrieved, len(cut))
      found += [
        self._answers(text, row, retrieved, reading, offsets, num_answers, truncated=bool(cut[row]))
        for row, text in enumerate(texts)
      ]
    return found

  def _offsets(self, retrieved: RetrievedQuestions, num_questions: int) -> dict[int, tuple]:
    num_read = retrieved.joint.shape[1]
    rows = np.unique(retrieved.passage_ids_BxR[:num_questions, :num_read])
    rows = [row for row in rows.tolist() if row >= 0]
    return dict(zip(rows, body_offsets(self._store, self._tokenizer, rows), strict=True))

  def _answers(
    self, text, row, retrieved, reading, offsets, num_answers, *, truncated
  ) -> QuestionAnswers:
    num_read = retrieved.joint.shape[1]
    ids_K = retrieved.passage_ids_BxR[row, :num_read]
    real_K = ids_K >= 0
    retrieval_K = np.exp(reading.retrieval_log_probs_BxK[row])
    answers: dict[str, SpanAnswer] = {}
    for span, log_prob in enumerate(reading.log_probs_BxC[row]):
      if log_prob < _NOTHING or len(answers) == num_answers:
        break
      answer = self._answer(row, span, retrieved, reading, offsets)
      answers.setdefault(answer.text.casefold(), answer)
    return QuestionAnswers(
      question=text,
      answers=tuple(answers.values()),
      passage_ids=tuple(ids_K[real_K].tolist()),
      titles=tuple(self._store.title(passage_id) for passage_id in ids_K[real_K].tolist()),
      scores=tuple(reading.scores_BxK[row][real_K].tolist()),
      retrieval_probabilities=tuple(retrieval_K[real_K].tolist()),
      truncated=truncated,
    )

  def _answer(self, row, span, retrieved, reading, offsets) -> SpanAnswer:
    slot = reading.slots_BxC[row, span]
    passage_id = int(retrieved.passage_ids_BxR[row, slot])
    starts, limits = offsets[passage_id]
    body = retrieved.query.mask[row].sum()  # the first wordpiece of the passage
    ids_T = retrieved.joint.ids[row, slot]
    first, last = reading.starts_BxC[row, span], reading.ends_BxC[row, span]
    # An answer is whole words, as in the original.
    while first > body and self._continues[ids_T[first]]:
      first -= 1
    while last + 1 < body + len(limits) and self._continues[ids_T[last + 1]]:
      last += 1
    raw = self._store.text(passage_id).encode()
    start, limit = int(starts[first - body]), int(limits[last - body])
    text = raw[start:limit].decode(errors="ignore")
    start_char = len(raw[:start].decode(errors="ignore"))
    return SpanAnswer(
      text=" ".join(_WORDS.findall(text)) if self._answer_text == "spaced" else text,
      passage_id=passage_id,
      title=self._store.title(passage_id),
      start_byte=start,
      limit_byte=limit,
      start_char=start_char,
      limit_char=start_char + len(text),
      probability=float(np.exp(reading.log_probs_BxC[row, span])),
      retrieval_probability=float(np.exp(reading.retrieval_log_probs_BxK[row, slot])),
      reader_probability=float(np.exp(reading.reader_log_probs_BxC[row, span])),
    )
