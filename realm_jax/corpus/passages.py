"""From documents to passages with wordpieces, sentence borders and salient spans."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from realm_jax.corpus import chunking
from realm_jax.corpus.documents import Document
from realm_jax.corpus.passage_store import passage_uid
from realm_jax.corpus.sentences import sentence_spans

_DOCUMENTS_PER_BATCH = 256  # one call of the tokenizer; keeps memory flat for any corpus


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passage:
  """A passage; all offsets are in bytes of `text`, ids without special tokens."""

  title: str
  text: str
  uid: int
  title_ids: np.ndarray
  body_ids: np.ndarray
  sentences: tuple[tuple[int, int], ...]
  spans: tuple[tuple[int, int], ...]


def make_passages(
  documents: Iterable[Document],
  *,
  tokenizer,
  tag: Callable[[str], Sequence[tuple[int, int]]],
  max_passage_length: int,
  max_sentences: int | None = None,
  counts: Counter,
) -> Iterator[Passage]:
  """Yields the passages of documents in order, exact duplicates left out.

  Args:
    documents: in the order that passage ids follow.
    tokenizer: a `WordPieceTokenizer`.
    tag: finds the salient spans (byte offsets) of a text that brings none.
    max_passage_length: wordpieces of `[CLS] title [SEP] body [SEP]` at most.
    max_sentences: sentences of a passage at most; None: as many as fit.
    counts: gains `passages`, `wordpieces`, `unknown_wordpieces`, `duplicate_passages` and what
      chunking counts.
  """
  seen: set[int] = set()
  for batch in _batches(documents, _DOCUMENTS_PER_BATCH):
    for passage in _passages_of_batch(
      batch, tokenizer, tag, max_passage_length, max_sentences, counts
    ):
      if passage.uid in seen:
        counts["duplicate_passages"] += 1
        continue
      seen.add(passage.uid)
      counts["passages"] += 1
      counts["wordpieces"] += len(passage.body_ids)
      counts["unknown_wordpieces"] += int(np.sum(passage.body_ids == tokenizer.unk_id))
      yield passage


def _passages_of_batch(
  documents, tokenizer, tag, max_passage_length, max_sentences, counts
) -> Iterator[Passage]:
  raws = [document.text.encode() for document in documents]
  borders = [sentence_spans(document.text) for document in documents]
  sentences = _tokenized_sentences(raws, borders, tokenizer)
  titles = tokenizer.encode_batch([document.title for document in documents])
  for document, raw, title_ids in zip(documents, raws, titles, strict=True):
    chunks = chunking.chunk_sentences(
      next(sentences),
      title_length=len(title_ids),
      max_passage_length=max_passage_length,
      max_sentences=max_sentences,
      counts=counts,
    )
    spans = document.spans if document.spans is not None else tag(document.text)
    for chunk in chunks:
      body_ids = chunk.ids
      text = raw[chunk.start : chunk.limit].decode()
      room = max_passage_length - chunking.SPECIAL_TOKENS_PER_PASSAGE - len(body_ids)
      yield Passage(
        title=document.title,
        text=text,
        uid=passage_uid(document.title, text),
        title_ids=title_ids[:room],
        body_ids=body_ids,
        sentences=_inside([(s.start, s.limit) for s in chunk.sentences], chunk),
        spans=_inside(spans, chunk),
      )


def _tokenized_sentences(raws, borders, tokenizer) -> Iterator[list[chunking.TokenizedSentence]]:
  """Tokenizes all sentences of a batch of documents in one call."""
  texts = [
    raw[start:limit] for raw, spans in zip(raws, borders, strict=True) for start, limit in spans
  ]
  encoded = iter(tokenizer.encode_with_offsets(texts))
  for spans in borders:
    yield [
      chunking.TokenizedSentence(start, limit, ids, start + starts, start + limits)
      for (start, limit), (ids, starts, limits) in zip(spans, encoded, strict=False)
    ]


def _inside(spans: Sequence[tuple[int, int]], chunk: chunking.Chunk) -> tuple[tuple[int, int], ...]:
  """Keeps the spans that lie wholly in the chunk, made relative to its first byte."""
  return tuple(
    (start - chunk.start, limit - chunk.start)
    for start, limit in spans
    if chunk.start <= start and limit <= chunk.limit
  )


def _batches(documents: Iterable[Document], size: int) -> Iterator[list[Document]]:
  batch: list[Document] = []
  for document in documents:
    batch.append(document)
    if len(batch) == size:
      yield batch
      batch = []
  if batch:
    yield batch
