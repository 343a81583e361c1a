"""Pairs from spans of words that recur in a document (Ram et al. 2022, "Spider").

Two passages of one document that share a span of words are about the same thing. The words around
the span in one of them are the query. It keeps the span half of the time, so that the model learns
to use matching words without relying on them. The other passage is a positive, and passages of the
document without the span are hard negatives.
"""

import collections
import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from realm_jax.corpus.passage_store import PassageStore, StoreMetadata
from realm_jax.foundations import choices, progress
from realm_jax.text import analysis, tokenization, words

_SHORTEST, _LONGEST = 2, 10  # words of a span
_WINDOW = (10, 30)  # words of a query, including its span
_KEEPS_SPAN = 0.5
# Words in more than this share and this number of passages neither begin nor end a span.
_COMMON_SHARE, _COMMON_NUMBER = 0.05, 20
_DOCUMENTS_AT_ONCE = 256
_WORD = re.compile(r"\w+")

NO_PASSAGE = -1

Place = tuple[int, int]  # passage of a document, and word of the passage
Places = dict[tuple[str, ...], list[Place]]  # by span


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairSettings:
  """How many passages a mined pair has.

  Attributes:
    num_positives: Maximum number of positive passages per query; the best are kept.
    num_hard_negatives: Maximum number of hard negatives per query; the hardest are kept.
  """

  num_positives: int = 8
  num_hard_negatives: int = 4

  def __post_init__(self):
    choices.check_counts(self, "num_positives")
    choices.check_counts(self, "num_hard_negatives", least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundPair:
  """A query and its passages, as rows of the store.

  Attributes:
    query: Its wordpieces without special tokens.
    right: Positive passages, at least one, best first.
    wrong: Hard negatives, hardest first.
  """

  query: np.ndarray
  right: Sequence[int]
  wrong: Sequence[int]


class Word(NamedTuple):
  """A word of a text: the form that is compared, and its character offsets."""

  form: str
  start: int
  limit: int


def reader(languages: Sequence[str]) -> Callable[[str], list[Word]]:
  """Returns a function from a text to its words.

  In English the forms differ in case only; in another language they are stems, because its words
  change more.
  """
  if "en" in languages:
    return lambda text: [Word(m[0].casefold(), *m.span()) for m in _WORD.finditer(text)]
  stem = analysis.Words(languages[0]).stem if len(languages) == 1 else str.casefold
  return lambda text: [Word(stem(text[a:b]), a, b) for a, b in words.word_spans(text)]


def mine(
  store: PassageStore, settings: PairSettings, *, query_length: int, seed: int
) -> dict[str, np.ndarray]:
  """Returns the pairs of a corpus in random order, as arrays.

  Args:
    query_length: Maximum wordpieces of a query; longer queries are truncated.
    seed: Seeds the draws and the order of the pairs.

  Raises:
    ValueError: If no span recurs.
  """
  if query_length < 3:
    raise ValueError(f"query_length={query_length}; [CLS] x [SEP] needs at least 3")
  finder = RecurringSpans(store)
  chunks, parts = finder.chunks(), []
  done = lambda: len(parts) / len(chunks)  # noqa: E731
  for number, chunk in enumerate(progress.track(chunks, what="parts", fraction=done)):
    found = finder.find(chunk, np.random.default_rng([seed, number]))
    parts.append(_features(found, settings, store.metadata, query_length=query_length))
  if not sum(len(part["query"]) for part in parts):
    raise ValueError(
      f"{store.directory} yields no pairs: no span recurs in a document; use another corpus"
    )
  pairs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
  order = np.random.default_rng(seed).permutation(len(pairs["query"]))
  return {name: rows[order] for name, rows in pairs.items()}


class RecurringSpans:
  """Finds the recurring spans of a corpus."""

  def __init__(self, store: PassageStore):
    self._store = store
    self._tokenizer = tokenization.load(f"{store.directory}/vocabulary")
    self._read = reader(store.metadata.languages)
    self._common = common_words(store, self._read)

  def chunks(self) -> Sequence[np.ndarray]:
    documents = documents_of(self._store)
    starts = range(0, len(documents), _DOCUMENTS_AT_ONCE)
    return [documents[i : i + _DOCUMENTS_AT_ONCE] for i in starts]

  def find(self, chunk: np.ndarray, random: np.random.Generator) -> list[FoundPair]:
    drawn = [draw for first, limit in chunk for draw in self._draw(range(first, limit), random)]
    queries = self._tokenizer.encode_batch([query for query, _, _ in drawn])
    return [
      FoundPair(query=query, right=right, wrong=wrong)
      for query, (_, right, wrong) in zip(queries, drawn, strict=True)
    ]

  def _draw(
    self, rows: range, random: np.random.Generator
  ) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yields a query, its positives and its hard negatives for each recurring span."""
    texts = [self._store.text(row) for row in rows]
    read = [self._read(text) for text in texts]
    title = " ".join(word.form for word in self._read(self._store.title(rows[0])))
    forms = [[word.form for word in found] for found in read]
    for span, places in recurring_spans(forms).items():
      in_title = f" {' '.join(span)} " in f" {title} "
      if in_title or span[0] in self._common or span[-1] in self._common:
        continue
      passage, word = places[random.integers(len(places))]
      holders = {place[0] for place in places}
      yield (
        _window(texts[passage], read[passage], (word, word + len(span)), random),
        [rows[i] for i in sorted(holders - {passage})],
        random.permutation([row for i, row in enumerate(rows) if i not in holders]).tolist(),
      )


def documents_of(store: PassageStore) -> np.ndarray:
  """Returns the first row and the limit `[F, 2]` of each document with several passages.

  These are consecutive passages with the same title or, without a title, the same document name.
  """
  names = [store.title(row) or store.document(row) for row in range(len(store))]
  borders = [row for row, name in enumerate(names) if not row or not name or name != names[row - 1]]
  documents_Fx2 = np.stack([borders, [*borders[1:], len(store)]], axis=1)
  return documents_Fx2[np.diff(documents_Fx2)[:, 0] > 1]


def common_words(store: PassageStore, read: Callable[[str], list[Word]]) -> frozenset[str]:
  """Returns the words that occur in too many passages to be informative."""
  counts = collections.Counter()
  for row in range(len(store)):
    counts.update({word.form for word in read(store.text(row))})
  limit = max(_COMMON_NUMBER, _COMMON_SHARE * len(store))
  return frozenset(word for word, count in counts.items() if count > limit)


def recurring_spans(words: Sequence[Sequence[str]]) -> Places:
  """Returns the longest spans of words that recur in several passages of a document, with places.

  A span that always occurs within a longer one is omitted.
  """
  longest: Places = {}
  candidates = [(i, k) for i, found in enumerate(words) for k in range(len(found) - 1)]
  shorter: Places = {}
  for length in range(_SHORTEST, _LONGEST + 2):
    groups = collections.defaultdict(list)
    for i, k in candidates:
      if k + length <= len(words[i]) and length <= _LONGEST:
        groups[tuple(words[i][k : k + length])].append((i, k))
    recurring = {span: places for span, places in groups.items() if len(dict(places)) > 1}
    inside = {
      (i, k + shift) for places in recurring.values() for i, k in places for shift in (0, 1)
    }
    longest |= {span: found for span, found in shorter.items() if not inside.issuperset(found)}
    # A longer span can recur only where its beginning and its end do.
    alive = {place for places in recurring.values() for place in places}
    candidates = [(i, k) for i, k in sorted(alive) if (i, k + 1) in alive]
    shorter = recurring
  return longest


def _window(
  text: str, words: Sequence[Word], span: tuple[int, int], random: np.random.Generator
) -> str:
  """Returns the text of some words around a span, with or without the span."""
  first, limit = span
  around = max(0, int(random.integers(*_WINDOW, endpoint=True)) - (limit - first))
  before = int(random.integers(around + 1))
  start = words[max(0, first - before)].start
  end = words[min(len(words), limit + around - before) - 1].limit
  if random.random() < _KEEPS_SPAN:
    return text[start:end]
  return f"{text[start : words[first].start]} {text[words[limit - 1].limit : end]}"


def _features(
  pairs: Sequence[FoundPair], settings: PairSettings, corpus: StoreMetadata, *, query_length: int
) -> dict[str, np.ndarray]:
  """Returns pairs as arrays: `query` `[n, L]`, `right` and `wrong`, padded with `NO_PASSAGE`."""
  queries = [
    [corpus.cls_id, *pair.query[: query_length - 2].tolist(), corpus.sep_id] for pair in pairs
  ]
  return {
    "query": _rows(queries, query_length, filling=0).astype(np.int32),
    "right": _rows([pair.right for pair in pairs], settings.num_positives, filling=NO_PASSAGE),
    "wrong": _rows([pair.wrong for pair in pairs], settings.num_hard_negatives, filling=NO_PASSAGE),
  }


def _rows(values: Sequence[Sequence[int]], length: int, *, filling: int) -> np.ndarray:
  rows_FxL = np.full((len(values), length), filling, np.int64)
  for row_L, value in zip(rows_FxL, values, strict=True):
    row_L[: len(value)] = value[:length]
  return rows_FxL
