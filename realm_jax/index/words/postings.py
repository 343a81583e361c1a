"""Postings: which texts have which terms, how often, and in which order.

A segment never changes. What is added becomes another segment; what is deleted is masked by those
who search.
"""

import bisect
import collections
import dataclasses
import functools
import itertools
from array import array
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from absl import logging

from realm_jax.foundations import array_folder, array_shapes, atomic_files, json_fields
from realm_jax.foundations.array_folder import Folder, FolderKind
from realm_jax.text.analysis import Analyzer
from realm_jax.text.languages import parse_tags

FORMAT = 7  # changes with the terms of any text
KIND = FolderKind(
  name="an index of BM25", kind="postings", format=FORMAT, remake="build the postings again"
)
_PREFIX = 8  # bytes of a term
_FEW_TERMS = 4096
_KEY_BITS = 63
_BREAK = -1  # follows the last word of each text
_SHAPES = {  # of T terms in N texts
  "spelling": "u1 S",
  "spelling_ends": "i8 T",
  "prefixes": "u8 T",
  "offsets": "i8 T+1",
  "rows": "i4 R",
  "counts": "u R",
  "words": "i4 W",
  "starts": "i8 N+1",
  "language": "u1 N",
  "pair_offsets": "i8 T+1",
  "next_words": "i4 P",
  "next_rows": "i4 P",
}


@dataclasses.dataclass(eq=False, kw_only=True)
class Postings:
  """The terms of N texts in some languages.

  Attributes:
    languages: The languages that terms are of.
    spelling: UTF-8 of all T terms, sorted and joined; term t ends at `spelling_ends[t]`.
    prefixes: The first eight bytes of each term as a number; their order is that of the terms.
    offsets: `[T+1]`; the texts with term t are `rows[offsets[t]:offsets[t+1]]`, ascending.
    counts: How often the term is in each of `rows`.
    words: The terms of all texts in order, with a -1 after each text.
    starts: `[N+1]`; text n is `words[starts[n]:starts[n+1] - 1]`.
    language: `[N]`, each text's place in `languages`.
    pair_offsets: `[T+1]`; the terms that follow term t are
      `next_words[pair_offsets[t]:pair_offsets[t+1]]`, ascending, as often as they do.
    next_words: The second terms of all pairs.
    next_rows: The texts with these pairs, ascending for each pair.
  """

  languages: tuple[str, ...]
  spelling: np.ndarray
  spelling_ends: np.ndarray
  prefixes: np.ndarray
  offsets: np.ndarray
  rows: np.ndarray
  counts: np.ndarray
  words: np.ndarray
  starts: np.ndarray
  language: np.ndarray
  pair_offsets: np.ndarray
  next_words: np.ndarray
  next_rows: np.ndarray

  @classmethod
  def build(
    cls,
    texts: Iterable[str],
    *,
    languages: Sequence[str] = ("en",),
    language_of: Iterable[str] | None = None,
  ) -> "Postings":
    """Analyzes texts.

    Args:
      languages: The languages of the texts, which decide what a term is.
      language_of: That of each text; None detects it.
    """
    analyzer = Analyzer(languages)
    ids = collections.defaultdict[str, int](itertools.count().__next__)
    words, starts, language = array("i"), array("q", [0]), array("B")
    given = itertools.repeat(None) if language_of is None else language_of
    for text, known in zip(texts, given):  # noqa: B905 (one may be endless)
      found, terms = analyzer.analyze(text, language=known)
      words.extend(map(ids.__getitem__, terms))
      words.append(_BREAK)
      starts.append(len(words))
      language.append(analyzer.languages.index(found))
    return cls._of(
      [term.encode() for term in ids],
      languages=analyzer.languages,
      words=np.frombuffer(words, np.int32) if words else np.zeros(0, np.int32),
      starts=np.frombuffer(starts, np.int64),
      language=np.frombuffer(language, np.uint8) if language else np.zeros(0, np.uint8),
    )

  @classmethod
  def merge(cls, segments: Sequence["Postings"], *, live: np.ndarray) -> "Postings":
    """Returns what building the live texts of some segments would, without analyzing them.

    Args:
      live: Bool over the consecutive texts of the segments.
    """
    ids: dict[bytes, int] = {}
    languages = languages_of(segments, live)
    words, lengths, language, first = [], [], [], 0
    for segment in segments:
      kept = live[first : first + len(segment)]
      first += len(segment)
      new = [ids.setdefault(segment.term(t), len(ids)) for t in range(segment.num_terms)]
      old = segment.words[np.repeat(kept, np.diff(segment.starts))]
      words.append(np.append(np.array(new, np.int32), np.int32(_BREAK))[old])
      lengths.append(np.diff(segment.starts)[kept])
      language.append(segment.language_among(languages)[kept])
    return cls._of(
      list(ids),
      languages=languages,
      words=np.concatenate(words),
      starts=np.concatenate([[0], np.cumsum(np.concatenate(lengths))]),
      language=np.concatenate(language),
    )

  @classmethod
  def _of(
    cls,
    terms: list[bytes],
    *,
    languages: tuple[str, ...],
    words: np.ndarray,
    starts: np.ndarray,
    language: np.ndarray,
  ) -> "Postings":
    """Inverts texts whose words are numbered as in `terms`."""
    used = np.zeros(len(terms) + 1, bool)
    used[words] = True
    order = sorted(np.flatnonzero(used[:_BREAK]).tolist(), key=terms.__getitem__)
    place = np.full(len(terms) + 1, _BREAK, np.int32)
    place[order] = np.arange(len(order))
    words = place[words]
    row = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
    is_word, borders = words != _BREAK, np.arange(len(order) + 1, dtype=np.int32)
    offsets, rows, counts = _counted(words[is_word], row[is_word], borders)
    is_pair = is_word[:-1] & is_word[1:]
    first, *following = _sorted(words[:-1][is_pair], words[1:][is_pair], row[:-1][is_pair])
    return cls(
      languages=languages,
      spelling=np.frombuffer(b"".join(terms[t] for t in order), np.uint8),
      spelling_ends=np.cumsum([len(terms[t]) for t in order], dtype=np.int64),
      prefixes=prefixes_of(terms[t] for t in order),
      offsets=offsets,
      rows=rows,
      counts=counts,
      words=words,
      starts=starts,
      language=language,
      pair_offsets=first.searchsorted(borders),
      next_words=following[0],
      next_rows=following[1],
    )

  def __len__(self) -> int:
    return len(self.language)

  @property
  def num_terms(self) -> int:
    return len(self.spelling_ends)

  def term(self, place: int) -> bytes:
    """Returns the spelling of a term."""
    start = self.spelling_ends[place - 1] if place else 0
    return self.spelling[start : self.spelling_ends[place]].tobytes()

  def check(self, **sizes: int) -> None:
    """Checks that the arrays fit together, but not what `check_values` does.

    Args:
      sizes: T and N, if they are known.
    """
    array_shapes.check(vars(self), _SHAPES, **sizes)
    array_shapes.check_range("language", self.language, len(self.languages))
    for ends, arrays in (
      (np.append(0, self.spelling_ends), ("spelling",)),
      (self.offsets, ("rows", "counts")),
      (self.starts, ("words",)),
      (self.pair_offsets, ("next_words", "next_rows")),
    ):
      for name in arrays:
        array_shapes.check_ends(f"the parts of {name}", ends, len(getattr(self, name)))

  def check_values(self) -> None:
    """Checks terms and rows, which are too many to read when postings are opened."""
    for name in ("words", "next_words"):
      array_shapes.check_range(name, getattr(self, name), self.num_terms, least=_BREAK)
    for name in ("rows", "next_rows"):
      array_shapes.check_range(name, getattr(self, name), len(self))

  def language_among(self, languages: Sequence[str]) -> np.ndarray:
    """Returns the place `[N]` of each text's language in others; 0 if it is not among them."""
    places = {language: place for place, language in enumerate(languages)}
    return np.array([places.get(language, 0) for language in self.languages], np.uint8)[
      self.language
    ]

  def places(self, terms: Sequence[bytes], prefixes: np.ndarray) -> list[int | None]:
    """Returns the place of each term, given its prefix; None if no text has it."""
    if self._few_prefixes is not None and self._few_prefixes.isdisjoint(prefixes.tolist()):
      return [None] * len(terms)
    firsts = self.prefixes.searchsorted(prefixes)
    there = self.prefixes.take(firsts, mode="clip") == prefixes
    known = zip(terms, firsts.tolist(), there.tolist(), strict=True)
    return [self._place(term, first) if begins else None for term, first, begins in known]

  @functools.cached_property
  def _few_prefixes(self) -> frozenset[int] | None:
    """The prefixes, if they are so few that most questions have none of them."""
    return frozenset(self.prefixes.tolist()) if self.num_terms <= _FEW_TERMS else None

  def _place(self, term: bytes, first: int) -> int | None:
    """Returns the place of a term, given the first with its prefix."""
    if self.term(first) == term:
      return first
    end = int(self.prefixes.searchsorted(self.prefixes[first], "right"))
    place = bisect.bisect_left(range(end), term, first, key=self.term)
    return place if place < end and self.term(place) == term else None

  def terms_of(self, row: int) -> list[int]:
    """Returns the places of a text's terms, in its order."""
    return self.words[self.starts[row] : self.starts[row + 1] - 1].tolist()

  def texts_of(self, place: int, following: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the texts with a term, or where another follows it, ascending, and how often."""
    if following is None:
      start, end = self.offsets[place : place + 2].tolist()
      return self.rows[start:end], self.counts[start:end]
    start, end = self.pair_offsets[place : place + 2].tolist()
    limits = np.array([following, following + 1], np.int32)
    first, limit = self.next_words[start:end].searchsorted(limits).tolist()
    rows = self.next_rows[start + first : start + limit]
    again = rows[1:] == rows[:-1]
    if not np.count_nonzero(again):  # faster than any()
      return rows, np.ones(len(rows), np.uint8)
    new = np.flatnonzero(np.append(True, ~again))
    return rows[new], np.diff(new, append=len(rows))

  def save(self, directory: str, *, identity: str = "") -> None:
    """Writes the postings to a new directory, or in place of others; `identity` is the texts'."""
    arrays = dict(array_folder.named_arrays(self))
    with atomic_files.new_directory(directory, kind=KIND) as unfinished:
      made_of = _made_of(identity, self.languages)
      array_folder.write(unfinished, arrays, kind=KIND, description=made_of)

  @classmethod
  def open(cls, folder: Folder[dict]) -> "Postings":
    """Maps saved postings into memory.

    Raises:
      ValueError: If they are damaged.
    """
    arrays = folder.mapped(ARRAYS)
    try:
      found = cls(languages=tuple(folder.description["languages"]), **arrays)
      found.check()
    except json_fields.WRONG as error:
      reason = json_fields.reason(error)
      raise ValueError(f"{folder.directory} is damaged: {reason}; {KIND.remake}") from error
    return found


def _counted(words: np.ndarray, row: np.ndarray, borders: np.ndarray) -> tuple[np.ndarray, ...]:
  """Returns where the texts of each term begin, these texts, and how often they have it."""
  words, rows = _sorted(words, row)
  new = np.append(True, (words[1:] != words[:-1]) | (rows[1:] != rows[:-1]))
  first = np.flatnonzero(new[: len(words)])
  counts = np.diff(first, append=len(words))
  counts = counts.astype(np.min_scalar_type(counts.max(initial=0)))
  return words[first].searchsorted(borders), rows[first], counts


def _sorted(*columns: np.ndarray) -> list[np.ndarray]:
  """Returns columns of numbers, none below 0, sorted by the first column, then by the next."""
  bits = [int(column.max(initial=0)).bit_length() for column in columns]
  if sum(bits) > _KEY_BITS:
    half = 1 << (bits[0] - 1)
    is_high = columns[0] >= half
    low = _sorted(*(column[~is_high] for column in columns))
    high = _sorted(columns[0][is_high] - half, *(column[is_high] for column in columns[1:]))
    high[0] += half
    return [np.concatenate(pair) for pair in zip(low, high, strict=True)]
  keys = np.zeros(len(columns[0]), np.int64)
  for column, size in zip(columns, bits, strict=True):
    keys <<= size
    keys |= column
  keys.sort()  # many times as fast as sorting by several columns
  found = []
  for size in reversed(bits):
    found.append((keys & ((1 << size) - 1)).astype(np.int32))
    keys >>= size
  return found[::-1]


def languages_of(segments: Iterable[Postings], live: np.ndarray) -> tuple[str, ...]:
  """Returns the languages of the live texts of segments, in alphabetical order."""
  found, first = set[str](), 0
  for segment in segments:
    used = np.bincount(segment.language[live[first : first + len(segment)]])
    found |= {segment.languages[place] for place in np.flatnonzero(used)}
    first += len(segment)
  return tuple(sorted(found))


def prefixes_of(terms: Iterable[bytes]) -> np.ndarray:
  """Returns the first bytes of terms as numbers."""
  padded = b"".join(term[:_PREFIX].ljust(_PREFIX, b"\0") for term in terms)
  return np.frombuffer(padded, f">u{_PREFIX}").astype(np.uint64)


ARRAYS = tuple(f.name for f in dataclasses.fields(Postings) if f.name != "languages")


def _made_of(identity: str, languages: Sequence[str]) -> dict:
  return {"identity": identity, "languages": [*languages]}


def open_or_build(
  directory: str,
  texts: Callable[[], Iterable[str]],
  *,
  identity: str,
  languages: Sequence[str] = ("en",),
) -> Postings:
  """Maps the postings in a directory into memory, after building them if missing or outdated.

  Args:
    directory: Where the postings are kept. On a read-only disk they are kept in memory.
    identity: Identifies the texts; the postings of others are replaced.
  """
  try:
    folder = Folder(directory, kind=KIND, of=dict)
    if folder.description == _made_of(identity, parse_tags(languages)):
      return Postings.open(folder)
  except (OSError, ValueError) as error:
    logging.info("cannot use the BM25 index in %s: %s", directory, error)
  logging.info("building the BM25 index in %s", directory)
  postings = Postings.build(texts(), languages=languages)
  try:
    postings.save(directory, identity=identity)
  except (OSError, ValueError) as error:
    logging.warning(
      "cannot save the BM25 index in %s, it will be built again: %s", directory, error
    )
  return postings
