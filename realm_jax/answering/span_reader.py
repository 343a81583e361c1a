"""Reads given passages for the answer to a question, by the rule of the released ORQA.

The logit of a span is its span score plus the retrieval score of its passage (Lee et al. 2019). One
softmax over the spans of all passages read gives p(y,z|x); the most probable span is the answer.
Equal answers in several places are not summed; the best of them counts.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import jax
import numpy as np
from scipy.special import log_softmax

from realm_jax.answering.answerer import AnsweringModel
from realm_jax.answering.read_passages import ReadPassage, best_spans, by_words, text_key
from realm_jax.answering.wordpiece_offsets import body_offsets
from realm_jax.corpus.edits import EditedStore, Edits
from realm_jax.corpus.passage_store import TokenizedPassages
from realm_jax.data.question_batches import question_batches
from realm_jax.devices.datatypes import Array, Questions, RetrievedQuestions, Tokens
from realm_jax.foundations import choices
from realm_jax.retrieval.joint_inputs import passage_tokens
from realm_jax.retrieval.question_retriever import BeamConfig, to_read
from realm_jax.text.wordpieces import Tokenizer

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanReader(choices.Checked):
  """Answers questions from passages that were found.

  Attributes:
    tokenizer: The tokenizer of the model.
    passage_length: P.
    embed_passage: Embeds `Tokens` `[R, P]` to `[R, E]`; None reads only what has embeddings.
    answer_text: "raw" slices the passage's text; "spaced" puts one space between words and
      punctuation, as the released ORQA does.
  """

  model: QuestionModel
  tokenizer: Tokenizer
  passage_length: int
  embed_passage: Callable[[Tokens], Array] | None
  answer_text: AnswerText = "raw"

  @functools.cached_property
  def _continues(self) -> np.ndarray:
    return np.array([piece.startswith("##") for piece in self.tokenizer.vocabulary])

  def read_passages(self, question: str, passages: Sequence[tuple[str, str]]) -> QuestionAnswers:
    """Returns the best answer to a question in passages: 1 to `num_read` titles and texts.

    Raises:
      ValueError: If passages cannot be embedded.
    """
    if self.embed_passage is None:
      raise ValueError("these passages have no embeddings; open the model with its encoder")
    model, length = self.model, self.passage_length
    tokenized = TokenizedPassages(passages, tokenizer=self.tokenizer, max_length=length)
    # Always as many, because each number is a program to compile; the others are empty.
    rows_K = np.arange(model.beam.num_read)
    ids_K = np.where(rows_K < len(passages), rows_K, -1)
    embeddings_KxE = np.asarray(self.embed_passage(passage_tokens(tokenized, ids_K, length=length)))
    ((batch, (truncated,)),) = self.batches([question], 1)
    (query_E,) = np.asarray(model.encode_query(model.params, batch.query), np.float32)
    scores_K = np.where(ids_K < 0, -np.inf, embeddings_KxE.astype(np.float32) @ query_E)
    order = np.argsort(-scores_K, kind="stable")
    sizes = {"config": model.beam, "max_span_width": model.max_span_width}
    beam = to_read(batch, ids_K[None, order], embeddings_KxE[None, order], store=tokenized, **sizes)
    (read,) = self.read(beam, EditedStore(tokenized, Edits()), num_read=len(ids_K))
    return self.best(question, read, 1, truncated=bool(truncated))

  def batches(
    self, questions: Sequence[str], batch_size: int
  ) -> Iterator[tuple[Questions, np.ndarray]]:
    """Yields batches of questions, and which of them were truncated."""
    return question_batches(
      questions,
      tokenizer=self.tokenizer,
      query_length=self.model.query_length,
      batch_size=batch_size,
    )

  def read(
    self, retrieved: RetrievedQuestions, store: EditedStore, *, num_read: int
  ) -> list[list[ReadPassage]]:
    """Returns the passages read for each question, best first."""
    model = self.model
    scores_BxR, logits_BxKxTxW = jax.device_get(model.read(model.params, retrieved))
    ids_BxK = retrieved.passage_ids_BxR[: int(retrieved.weights_B.sum()), :num_read]
    rows = np.unique(ids_BxK[ids_BxK >= 0])
    offsets = body_offsets(store, self.tokenizer, rows)
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

  def best(
    self, question: str, passages: Sequence[ReadPassage], num_answers: int, *, truncated: bool
  ) -> QuestionAnswers:
    """Returns the best answers with different texts in the passages read."""
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
        text=" ".join(_WORDS.findall(text)) if self.answer_text == "spaced" else text,
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
