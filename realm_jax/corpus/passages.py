"""Turns documents into passages with wordpieces, sentence boundaries and salient spans."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from realm_jax.corpus import chunking
from realm_jax.corpus.documents import Document
from realm_jax.corpus.passage_store import passage_uid
from realm_jax.corpus.sentences import sentence_spans
from realm_jax.text import detection


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passage:
  """A passage; offsets are in bytes of `text`, and the ids exclude special tokens."""

  document: str
  title: str
  text: str
  uid: int
  title_ids: np.ndarray
  body_ids: np.ndarray
  sentences: tuple[tuple[int, int], ...]
  spans: tuple[tuple[int, int], ...]


def make_passages(
  documents: Sequence[Document],
  *,
  tokenizer,
  tag: Callable[[str, str], Sequence[tuple[int, int]]],
  config: chunking.ChunkingConfig,
  counts: Counter,
  languages: Sequence[str] = ("en",),
) -> Iterator[Passage]:
  """Yields the passages of documents in order.

  The passages of a document depend only on the document. Taking several documents at once allows
  tokenizing many sentences in one call, which is cheaper. A title without a text is the text.

  Args:
    documents: Documents, held in memory together.
    tokenizer: A `WordPieceTokenizer`.
    tag: Finds the salient spans (byte offsets) of a text in a language.
    counts: Updated with the counts of chunking.
    languages: The languages of the corpus; each document has one of them.
  """
  documents = [
    document
    if document.text.strip()
    else dataclasses.replace(document, title="", text=document.title)
    for document in documents
  ]
  raws = [document.text.encode() for document in documents]
  language_of = [
    detection.language_of(f"{document.title}\n{document.text}", among=languages)
    for document in documents
  ]
  borders = [
    sentence_spans(document.text, language=language)
    for document, language in zip(documents, language_of, strict=True)
  ]
  titles = [document.title.encode() for document in documents]
  tokenized = _tokenized(titles, raws, borders, tokenizer)
  for document, language, raw, (title_ids, sentences) in zip(
    documents, language_of, raws, tokenized, strict=True
  ):
    chunks = chunking.chunk_sentences(
      sentences, title_length=len(title_ids), config=config, counts=counts
    )
    spans = document.spans if document.spans is not None else tag(document.text, language)
    for chunk in chunks:
      body_ids = chunk.ids
      text = raw[chunk.start : chunk.limit].decode()
      room = config.max_passage_length - chunking.SPECIAL_TOKENS_PER_PASSAGE - len(body_ids)
      yield Passage(
        document=document.id,
        title=document.title,
        text=text,
        uid=passage_uid(document.title, text),
        title_ids=title_ids[:room],
        body_ids=body_ids,
        sentences=tuple((s.start - chunk.start, s.limit - chunk.start) for s in chunk.sentences),
        spans=_inside(spans, chunk),
      )


def _tokenized(
  titles, raws, borders, tokenizer
) -> Iterator[tuple[np.ndarray, list[chunking.TokenizedSentence]]]:
  """Tokenizes titles and sentences of a batch of documents in one call; yields those of each."""
  texts = [
    raw[start:limit] for raw, spans in zip(raws, borders, strict=True) for start, limit in spans
  ]
  encoded = iter(tokenizer.encode_with_offsets([*titles, *texts]))
  title_ids = [ids for ids, _, _ in itertools.islice(encoded, len(titles))]
  for ids_of_title, spans in zip(title_ids, borders, strict=True):
    yield (
      ids_of_title,
      [
        chunking.TokenizedSentence(start, limit, *pieces)
        for (start, limit), pieces in zip(spans, encoded, strict=False)
      ],
    )


def _inside(spans: Sequence[tuple[int, int]], chunk: chunking.Chunk) -> tuple[tuple[int, int], ...]:
  """Returns the spans that lie entirely in the chunk, relative to its first byte."""
  first, end = chunk.start, chunk.limit
  return tuple([(a - first, b - first) for a, b in spans if first <= a and b <= end])
