"""Answers questions with spans of the passages that an index finds, and explains them."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from realm_jax.answering.answerer import Answerer, EditableCorpus, power_of_two
from realm_jax.answering.explanation import Explanation
from realm_jax.answering.read_passages import (
  ReadPassage,
  explain_spans,
)
from realm_jax.answering.span_reader import (
  AnswerText,
  QuestionAnswers,
  QuestionModel,
  SpanReader,
)
from realm_jax.corpus.edits import Edits
from realm_jax.data.question_batches import question_batches
from realm_jax.devices.datatypes import Array, Questions, SearchResults, Tokens
from realm_jax.index.fused_searcher import Hybrid
from realm_jax.index.vectors.searcher import Searcher
from realm_jax.retrieval.question_retriever import QuestionRetriever
from realm_jax.text.wordpieces import MASK, Tokenizer


class QuestionAnswerer(Answerer[QuestionModel]):
  """Answers questions with one fine-tuned checkpoint and one index generation.

  Args:
    corpus: The corpus with the embeddings of the generation.
    batch_size: Questions per batch in `answer` and `retrieve`.
    answer_text: See `SpanReader`.

  Attributes:
    reader: What reads passages that were found, also others.
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
    super().__init__(model, corpus)
    self._batch_size = batch_size
    self.reader = SpanReader(
      model=model,
      tokenizer=corpus.tokenizer,
      passage_length=corpus.passage_length,
      embed_passage=corpus.embed_passage,
      answer_text=answer_text,
    )

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
    for batch, truncated in self.reader.batches(questions, self._batch_size):
      texts = [questions[int(i)] for i in batch.index_B[: len(truncated)]]
      read = self._read(batch, texts, Edits(), num_read=self.model.beam.num_read)
      found += [
        self.reader.best(text, passages, num_answers, truncated=bool(cut))
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
    ((batch, _),) = self.reader.batches(texts, power_of_two(len(texts)))
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
    return self.reader.read(retrieved, store, num_read=num_read)


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
