"""Answers questions with spans of passages, by the rule of the released ORQA (Lee et al. 2019).

The logit of a span is its span score plus the retrieval score of its passage. One softmax over the
spans of all passages read gives p(y,z|x), and the most probable span is the answer. Equal answers
in several places are not summed; the best of them counts.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import jax
import numpy as np
from scipy.special import log_softmax

from realm_jax.answering.answerer import Answerer, AnsweringModel, EditableCorpus, power_of_two
from realm_jax.answering.explanation import Explanation
from realm_jax.answering.read_passages import (
  ReadPassage,
  best_spans,
  by_words,
  explain_spans,
  text_key,
)
from realm_jax.corpus.edits import Edits
from realm_jax.corpus.wordpiece_offsets import body_offsets
from realm_jax.data.question_batches import question_batches
from realm_jax.devices.datatypes import Array, Questions, SearchResults, Tokens
from realm_jax.foundations import choices
from realm_jax.index.fused_searcher import Hybrid
from realm_jax.index.searcher import Searcher
from realm_jax.retrieval.question_retriever import BeamConfig, QuestionRetriever
from realm_jax.text.wordpieces import MASK, Tokenizer

AnswerText = Literal["raw", "spaced"]
_WORDS = re.compile(r"\w+|[^\w\s]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanAnswer:
  """An answer and its position; bytes (UTF-8) and characters count from 0 in the passage's text.

  Attributes:
    text: The raw text of the answer.
    passage_id: Row of the store.
    limit_byte: Byte after the last.
    limit_char: Character after the last.
    probability: p(y,z|x), by which answers are ranked.
    retrieval_probability: p(z|x) among the passages read.
    reader_probability: p(y|z,x) among the spans of the passage.
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
  """The answers to a question, best first; none if no passage has any words.

  Attributes:
    answers: Answers with different texts.
    passage_ids: The passages read, best first.
    retrieval_probabilities: p(z|x) of each.
    truncated: Whether the question exceeded the model's input and its end was not read.
  """

  question: str
  answers: tuple[SpanAnswer, ...]
  passage_ids: tuple[int, ...]
  titles: tuple[str, ...]
  scores: tuple[float, ...]
  retrieval_probabilities: tuple[float, ...]
  truncated: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionModel(AnsweringModel):
  """A fine-tuned model; `read` is `(params, RetrievedQuestions) -> scores_BxR, logits_BxKxTxW`.

  Attributes:
    beam: Sizes of the beam. One more passage is found, the reserve for explanations.
    max_span_width: Maximum wordpieces of an answer.
  """

  beam: BeamConfig
  max_span_width: int


class QuestionAnswerer(Answerer[QuestionModel]):
  """Answers questions with one fine-tuned checkpoint and one index generation.

  Args:
    corpus: The corpus with the embeddings of the generation.
    batch_size: Questions per batch in `answer` and `retrieve`.
    answer_text: "raw" slices the passage's text; "spaced" puts one space between words and
      punctuation, as the released ORQA does.
  """

  kind = "question"

  def __init__(
    self,
    model: QuestionModel,
    corpus: EditableCorpus,
    *,
    batch_size: int = 32,
    answer_text: AnswerText = "raw",
  ):
    choices.check(AnswerText, answer_text=answer_text)
    super().__init__(model, corpus)
    self._batch_size = batch_size
    self._answer_text = answer_text
    self._continues = np.array([piece.startswith("##") for piece in corpus.tokenizer.vocabulary])

  def retrieve(self, questions: Sequence[str], *, k: int) -> SearchResults:
    """Returns the best `k` passages of each question, over the whole corpus."""
    search = QuestionSearch(
      params=self.model.params,
      encode_query=self.model.encode_query,
      searcher=self.corpus.index(Edits()).searcher,
      tokenizer=self.corpus.tokenizer,
      query_length=self.model.query_length,
      batch_size=self._batch_size,
      hybrid=self.corpus.hybrid,
    )
    return search.retrieve(questions, k=k)

  def answer(self, questions: Sequence[str], *, num_answers: int = 1) -> list[QuestionAnswers]:
    """Returns the best answers to each question; questions that are too long are truncated."""
    found = []
    for batch, truncated in self._batches(questions, self._batch_size):
      texts = [questions[int(i)] for i in batch.index_B[: len(truncated)]]
      read = self._read(batch, texts, Edits(), num_read=self.model.beam.num_read)
      found += [
        self._best(text, passages, num_answers, truncated=bool(cut))
        for text, passages, cut in zip(questions[len(found) :], read, truncated, strict=False)
      ]
    return found

  def _explained(
    self, texts: Sequence[str], answers: int, target: str | None, edits: Edits
  ) -> Iterator[tuple[Explanation, Tokens]]:
    """See `Answerer`; a target has probability 0 if no passage read contains it."""
    for text in texts:
      self._check(text)
    if target is not None and not target.strip():
      raise ValueError("the target is empty; omit it to explain the most likely answer")
    ((batch, _),) = self._batches(texts, power_of_two(len(texts)))
    num_read = self.model.beam.num_read
    for row, passages in enumerate(self._read(batch, texts, edits, num_read=num_read + 1)):
      explanation = explain_spans(
        texts[row], passages, num_read=num_read, num_answers=answers, target=target
      )
      yield explanation, batch.query[row : row + 1]

  def _check(self, text: str) -> None:
    if MASK in text:
      raise ValueError(f"{text!r} has a {MASK}; this model answers questions instead")
    length, room = len(self.corpus.tokenizer.encode(text)), self.model.query_length - 2
    if not 0 < length <= room:
      raise ValueError(
        f"the question {text!r} has {length} wordpieces; this model reads 1 to {room}"
      )

  def _batches(
    self, questions: Sequence[str], batch_size: int
  ) -> Iterator[tuple[Questions, np.ndarray]]:
    return question_batches(
      questions,
      tokenizer=self.corpus.tokenizer,
      query_length=self.model.query_length,
      batch_size=batch_size,
    )

  def _read(
    self, batch: Questions, texts: Sequence[str], edits: Edits, *, num_read: int
  ) -> list[list[ReadPassage]]:
    """Returns the passages read for each question, best first."""
    model = self.model
    store = self.corpus.view(edits)
    # Without training, the beam is what is read. The reserve is always found, so that the same
    # passages are read with and without an explanation.
    sizes = dataclasses.replace(
      model.beam,
      beam_size=model.beam.num_read + 1,
      num_read=num_read,
      order="searcher" if self.corpus.hybrid else model.beam.order,
    )
    retriever = QuestionRetriever(
      encode_query=model.encode_query,
      loaded=self.corpus.index(edits, texts),
      store=store,
      config=sizes,
      max_span_width=model.max_span_width,
    )
    retrieved, _ = retriever.finish(retriever.begin(model.params, batch))
    scores_BxR, logits_BxKxTxW = jax.device_get(model.read(model.params, retrieved))
    ids_BxK = retrieved.passage_ids_BxR[: int(batch.weights_B.sum()), :num_read]
    rows = np.unique(ids_BxK[ids_BxK >= 0])
    offsets = body_offsets(store, self.corpus.tokenizer, rows)
    offset_of = dict(zip(rows.tolist(), offsets, strict=True))

    def passage(row: int, slot: int) -> ReadPassage:
      passage_id = int(ids_BxK[row, slot])
      body = slice(
        int(retrieved.query.mask[row].sum()),
        int(retrieved.joint.mask[row, slot].sum()) - 1,  # the final [SEP]
      )
      continues_T = self._continues[retrieved.joint.ids[row, slot, body]]
      return ReadPassage(
        passage_id=passage_id,
        title=store.title(passage_id),
        text=store.text(passage_id),
        edited=store.edited(passage_id),
        score=float(scores_BxR[row, slot]),
        spans=by_words(logits_BxKxTxW[row, slot, body], continues_T),
        offsets=offset_of[passage_id],
      )

    return [
      [passage(row, slot) for slot in np.flatnonzero(ids_K >= 0).tolist()]
      for row, ids_K in enumerate(ids_BxK)
    ]

  def _best(
    self, question: str, passages: Sequence[ReadPassage], num_answers: int, *, truncated: bool
  ) -> QuestionAnswers:
    scores_K = np.array([passage.score for passage in passages])
    retrieval_K = np.exp(log_softmax(scores_K)).tolist()
    answers: dict[str, SpanAnswer] = {}
    for slot, span, log_prob in best_spans(passages):
      if len(answers) == num_answers:
        break
      passage = passages[slot]
      text, (start, limit) = passage.words(span), passage.byte_span(span)
      start_char, limit_char = passage.char_span(span)
      answer = SpanAnswer(
        text=" ".join(_WORDS.findall(text)) if self._answer_text == "spaced" else text,
        passage_id=passage.passage_id,
        title=passage.title,
        start_byte=start,
        limit_byte=limit,
        start_char=start_char,
        limit_char=limit_char,
        probability=float(np.exp(log_prob)),
        retrieval_probability=retrieval_K[slot],
        reader_probability=float(np.exp(passage.spans.log_probs_S[span])),
      )
      if text_key(text):
        answers.setdefault(text_key(text), answer)
    return QuestionAnswers(
      question=question,
      answers=tuple(answers.values()),
      passage_ids=tuple(passage.passage_id for passage in passages),
      titles=tuple(passage.title for passage in passages),
      scores=tuple(scores_K.tolist()),
      retrieval_probabilities=tuple(retrieval_K),
      truncated=truncated,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuestionSearch:
  """Finds any number of passages; no reader is needed.

  Attributes:
    encode_query: Jitted, `(params, Tokens [B, L]) -> [B, E]`.
    query_length: L.
    batch_size: Questions encoded at once.
    hybrid: BM25, to search as well; None searches the generation alone.
  """

  params: dict
  encode_query: Callable[[dict, Tokens], Array]
  searcher: Searcher
  tokenizer: Tokenizer
  query_length: int
  batch_size: int = 32
  hybrid: Hybrid | None = None

  def retrieve(self, questions: Sequence[str], *, k: int) -> SearchResults:
    """Returns the best `k` passages of each question, over the whole corpus."""
    parts, searcher = [], self.searcher
    for batch, truncated in question_batches(
      questions,
      tokenizer=self.tokenizer,
      query_length=self.query_length,
      batch_size=self.batch_size,
    ):
      queries_BxE = np.asarray(self.encode_query(self.params, batch.query), np.float32)
      queries_BxE = queries_BxE[: len(truncated)]
      if self.hybrid is not None:
        texts = [questions[int(i)] for i in batch.index_B[: len(truncated)]]
        searcher = self.hybrid.searcher(self.searcher, texts)
      parts.append(searcher.search(queries_BxE, k))
    return SearchResults(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
