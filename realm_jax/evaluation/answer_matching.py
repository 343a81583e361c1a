"""Finds which passages contain an answer, and where, once before training or evaluation.

A passage has an answer as `data.answers` says. One pass over the wordpieces of the passage
store finds the answers of all questions, without tokenizing any passage. Where wordpieces do not
show the tokens of an answer or of a passage, as with symbols and scripts without spaces, the text
is searched, and so it is for regular expressions; only passages with a match are tokenized, to map
characters to wordpieces.

Matches are kept in memory-mapped temporary files (in `$TMPDIR`), so memory holds only the answers
and a chunk of passages, however large the corpus is and however often answers occur.
"""

import bisect
import functools
import itertools
import re
import tempfile
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import regex
from absl import logging

from realm_jax.answering.wordpiece_offsets import body_offsets
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.data import prepared_examples
from realm_jax.data.answers import folded, joined_tokens, pattern_spans, token_spans
from realm_jax.data.question_batches import encode_questions
from realm_jax.data.questions import Question
from realm_jax.evaluation.sequence_search import SequenceSearch, fold, required_literals
from realm_jax.text.languages import UNSPACED

_ROWS_AT_ONCE = 8192
_OCCURRENCES_AT_ONCE = 1 << 20
_PARTS = ("occurrences", "questions")
_NO_TEXT = b"\xff"  # never occurs in UTF-8
# These end a token, but no word of BERT's.
_ENDS_TOKEN = regex.compile(rf"[\p{{S}}--\p{{ASCII}}]|[{UNSPACED}--\p{{Han}}]", regex.V1)

_Name = tuple[str, str]  # how to search ("wordpieces", "text" or "regex"), and the answer


class AnswerMatcher:
  """Knows where the answers of questions occur; questions are identified by position.

  Args:
    occurrences: Row, first and last wordpiece of each occurrence, by answer, sorted by row.
    questions: The answers of each question.

  Attributes:
    unanswerable: Number of questions without an answer in any passage.
  """

  def __init__(self, occurrences: "_GroupedRows", questions: "_GroupedRows"):
    self._occurrences = occurrences
    self._questions = questions
    occurs = occurrences.lengths > 0
    self.unanswerable = sum(not occurs[questions[i]].any() for i in range(len(questions)))

  @classmethod
  def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "AnswerMatcher":
    """Restores a matcher from its `arrays`."""
    try:
      return cls(*(_GroupedRows(arrays[name], arrays[f"{name}_lengths"]) for name in _PARTS))
    except (KeyError, IndexError, ValueError) as error:
      raise ValueError(f"the arrays are not labels of questions: {error!r}") from error

  def arrays(self) -> dict[str, np.ndarray]:
    """Returns the matcher as int32 arrays: concatenated groups, and the length of each."""
    parts = (self._occurrences, self._questions)
    arrays = {}
    for name, part in zip(_PARTS, parts, strict=True):
      arrays[name], arrays[f"{name}_lengths"] = part.values, part.lengths
    return arrays

  def contains(self, question_index_B: np.ndarray, ids_BxR: np.ndarray) -> np.ndarray:
    """Returns bool `[B, R]`: whether a passage contains an answer; False for negative ids."""
    found_BxR = np.zeros(ids_BxR.shape, bool)
    for found_R, index, ids_R in zip(found_BxR, question_index_B, ids_BxR, strict=True):
      for answer in self._questions[int(index)]:
        rows = self._occurrences[answer][:, 0]
        if len(rows):
          at = np.minimum(np.searchsorted(rows, ids_R), len(rows) - 1)
          found_R |= rows[at] == ids_R
    return found_BxR

  def narrowest(self) -> np.ndarray:
    """Returns int `[questions]`: wordpieces of the narrowest occurrence; 0 if there is none."""
    lengths, widths = self._occurrences.lengths, np.zeros(len(self._occurrences), np.int64)
    if lengths.any():
      _, firsts, lasts = self._occurrences.values.T
      starts = (np.cumsum(lengths) - lengths)[lengths > 0]
      widths[lengths > 0] = np.minimum.reduceat(1 + lasts - firsts, starts)
    of_answers = (widths[self._questions[i]] for i in range(len(self._questions)))
    return np.array([min(of_one[of_one > 0], default=0) for of_one in of_answers], np.int64)

  def spans(self, question_index: int, row: int) -> np.ndarray:
    """Returns int32 `[n, 2]`: first and last body wordpiece of each occurrence, sorted."""
    spans = set()
    for answer in self._questions[question_index]:
      occurrences = self._occurrences[answer]
      rows = occurrences[:, 0]
      first, limit = bisect.bisect_left(rows, row), bisect.bisect_right(rows, row)
      spans.update(map(tuple, occurrences[first:limit, 1:].tolist()))
    return np.array(sorted(spans), np.int32).reshape(-1, 2)


def match_answers(
  questions: Sequence[Question], *, store: PassageStore, rows: np.ndarray | None = None
) -> AnswerMatcher:
  """Searches a passage store for all answers, in whole tokens.

  Args:
    rows: Rows to search; None searches all.
  """
  tokenizer = store.tokenizer
  rows = np.arange(len(store)) if rows is None else np.unique(rows[rows >= 0])
  texts = sorted({a for question in questions if not question.regex for a in question.answers})
  patterns = {("regex", a): a for q in questions if q.regex for a in q.answers}
  ids = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
  # Wordpieces with case or accents differ where tokens do not.
  is_uncased = tokenizer.lower_case and tokenizer.strip_accents
  shown = {
    text: is_uncased and tokenizer.unk_id not in ids[text] and _is_shown_by_wordpieces(text)
    for text in texts
  }
  names = [
    [(way, a) for a in q.answers for way in (("regex",) if q.regex else ("wordpieces", "text"))]
    for q in questions
  ]
  found = _Collector(sorted({name for of_one in names for name in of_one}))
  searched = {"store": store, "rows": rows, "found": found}
  wordpieces = {
    ("wordpieces", text): tuple(i.tolist()) for text, i in ids.items() if shown[text] and len(i)
  }
  _find_wordpieces(wordpieces, **searched)
  hidden = [text for text in texts if not shown[text]]
  _find_tokens(hidden, **searched)
  rest = [text for text in texts if shown[text]]
  rows = _rows_with_hidden_tokens(store, rows) if rest else rows[:0]
  _find_tokens(rest, **{**searched, "rows": rows})
  _find_patterns(patterns, **searched)
  answers = [[found.numbers[name] for name in of_one] for of_one in names]
  lengths = np.array([len(of_one) for of_one in answers], np.int64)
  wanted = _GroupedRows(np.fromiter(itertools.chain(*answers), np.int32), lengths)
  return AnswerMatcher(found.grouped(), wanted)


def find_labels(
  questions: Sequence[Question],
  *,
  file: str,
  store: PassageStore,
  query_length: int,
  prepared: str | None = None,
) -> AnswerMatcher:
  """Finds the answers, and logs how many questions cannot be learned from.

  Args:
    prepared: Directory of the questions prepared as examples, which have the labels.

  Raises:
    ValueError: If no passage contains an answer to any question.
  """
  if prepared is not None:
    return AnswerMatcher.from_arrays(prepared_examples.read_arrays(prepared))
  # Needs TensorFlow; where it is missing, labels come with prepared examples.
  matcher = match_answers(questions, store=store)
  if matcher.unanswerable == len(questions):
    raise ValueError(
      f"none of the {len(questions)} questions in {file} has its answer in a passage; check that "
      "this is the right corpus"
    )
  encoded = encode_questions([question.text for question in questions], store.tokenizer)
  logging.info(
    "%d questions; %d have no answer in any passage and do not contribute; %d are longer than "
    "query_length=%d and are truncated",
    len(questions),
    matcher.unanswerable,
    sum(len(ids) > query_length - 2 for ids in encoded),
    query_length,
  )
  return matcher


def warn_of_wide_answers(
  questions: Sequence[Question], matcher: AnswerMatcher, *, max_span_width: int
) -> None:
  """Logs how many questions have only answers that the reader cannot give."""
  widths = matcher.narrowest()
  wide = np.flatnonzero(widths > max_span_width)
  if len(wide):
    logging.warning(
      "%d of %d questions have only answers wider than max_span_width=%d, such as %r (%d "
      "wordpieces): the reader learns nothing from them; max_span_width=%d holds all",
      len(wide),
      len(questions),
      max_span_width,
      questions[wide[0]].answer,
      widths[wide[0]],
      widths.max(),
    )


class _Collector:
  """Collects the occurrences of names, known by number, in a file, keeping none in memory."""

  def __init__(self, names: Sequence[_Name]):
    self.numbers = {name: number for number, name in enumerate(names)}
    self._file = tempfile.TemporaryFile(prefix="realm_labels_")
    self._lengths = np.zeros(len(names), np.int64)

  def add(self, numbers: np.ndarray, rows: np.ndarray, firsts, lasts) -> None:
    """Records where the names at these numbers occur in rows of a chunk; chunks are in order."""
    np.add.at(self._lengths, numbers, 1)
    self._file.write(np.column_stack([numbers, rows, firsts, lasts]).astype(np.int32).tobytes())

  def grouped(self) -> "_GroupedRows":
    """Returns the occurrences of each name, memory-mapped from a temporary file."""
    total = int(self._lengths.sum())
    if not total:
      return _GroupedRows(np.zeros((0, 3), np.int32), self._lengths)
    with self._file, tempfile.TemporaryFile(prefix="realm_labels_") as target:
      values = np.memmap(target, np.int32, "w+", shape=(total, 3))
      ends = np.cumsum(self._lengths) - self._lengths  # by name, end of the rows placed so far
      self._file.seek(0)
      while len(found := np.fromfile(self._file, np.int32, 4 * _OCCURRENCES_AT_ONCE)):
        records = found.reshape(-1, 4)
        records = records[np.argsort(records[:, 0], kind="stable")]
        numbers, counts = np.unique(records[:, 0], return_counts=True)
        firsts = np.repeat(ends[numbers] - (np.cumsum(counts) - counts), counts)
        values[firsts + np.arange(len(records))] = records[:, 1:]
        ends[numbers] += counts
    return _GroupedRows(values, self._lengths)


class _GroupedRows:
  """Groups of rows, concatenated in one array.

  Args:
    values: int32 `[n]` or `[n, width]`.
    lengths: Number of rows of each group.
  """

  def __init__(self, values: np.ndarray, lengths: np.ndarray):
    if np.sum(lengths) != len(values):
      raise ValueError(f"{len(values)} rows in groups of {np.sum(lengths)} in all")
    self.values = np.asarray(values)  # a view without the slow indexing of a memory map
    self.lengths = np.asarray(lengths, np.int32)
    self._ends = np.cumsum(self.lengths, dtype=np.int64)

  def __getitem__(self, group: int) -> np.ndarray:
    """Returns the rows of a group."""
    end = self._ends[group]
    return self.values[end - self.lengths[group] : end]

  def __len__(self) -> int:
    return len(self.lengths)


def _chunks(rows: np.ndarray) -> Iterator[np.ndarray]:
  for first in range(0, len(rows), _ROWS_AT_ONCE):
    yield rows[first : first + _ROWS_AT_ONCE]


def _find_wordpieces(
  ids: dict[_Name, tuple[int, ...]], *, store: PassageStore, rows, found: _Collector
) -> None:
  if not ids:
    return
  names = defaultdict(list)  # texts that differ only in case, accents or spacing share an entry
  for name, sequence in ids.items():
    names[sequence].append(found.numbers[name])
  lengths = np.array([len(sequence) for sequence in names])
  of_sequences = np.fromiter(itertools.chain(*names.values()), np.int64)
  counts = np.array([len(of_one) for of_one in names.values()])
  ends = np.cumsum(counts)
  search = SequenceSearch(names, alphabet_size=store.tokenizer.vocab_size)
  inside_word = np.array([piece.startswith("##") for piece in store.tokenizer.vocabulary])
  # One column more than any body has, so that no sequence continues into the next row.
  width = store.metadata.max_passage_length + 1
  for chunk in _chunks(rows):
    values = store.body_ids(chunk, length=width)[0].reshape(-1)
    positions, numbers = search.find(values)
    after = np.minimum(positions + lengths[numbers], len(values) - 1)
    whole = ~inside_word[values[after]]
    positions, numbers = positions[whole], numbers[whole]
    order = np.argsort(positions, kind="stable")
    positions, numbers = positions[order], numbers[order]
    # A sequence stands for all its names.
    repeated = np.repeat(np.arange(len(numbers)), counts[numbers])
    rank = np.arange(len(repeated)) - np.repeat(
      np.cumsum(counts[numbers]) - counts[numbers], counts[numbers]
    )
    positions, numbers = positions[repeated], numbers[repeated]
    of_names = of_sequences[ends[numbers] - counts[numbers] + rank]
    holders, firsts = chunk[positions // width], positions % width
    found.add(of_names, holders, firsts, firsts + lengths[numbers] - 1)


def _find_patterns(
  patterns: dict[_Name, str], *, store: PassageStore, rows, found: _Collector
) -> None:
  if not patterns:
    return
  bare = {name: _without_open_ends(pattern) for name, pattern in patterns.items()}
  everywhere, by_literal = [], defaultdict(list)
  for name, pattern in patterns.items():
    literals = required_literals(pattern)
    if literals is None:
      everywhere.append(name)
    for literal in literals or ():
      by_literal[literal].append(name)
  literals = list(by_literal)
  search = SequenceSearch([literal.encode() for literal in literals], alphabet_size=256)
  for chunk in _chunks(rows):
    texts = [store.text(row) for row in chunk]
    candidates = {(index, name) for index in range(len(texts)) for name in everywhere}
    numbers, holders, _ = _located_matches(search, [fold(text).encode() for text in texts])
    for number, index in set(zip(numbers, holders, strict=True)):
      candidates |= {(index, name) for name in by_literal[literals[number]]}
    matches = defaultdict(list)
    for index, name in sorted(candidates):
      if spans := pattern_spans(bare[name], texts[index], written=patterns[name]):
        matches[index].append((name, spans))
    _add_spans(matches, texts, chunk, store=store, found=found)


def _find_tokens(texts: Sequence[str], *, store: PassageStore, rows, found: _Collector) -> None:
  """Finds answers in the texts of passages."""
  wanted = defaultdict(list)
  for text in texts:
    tokens = joined_tokens(text)
    if not tokens.isspace():
      wanted[tokens.encode()].append(("text", text))
  if not wanted:
    return
  sequences = list(wanted)
  search = SequenceSearch(sequences, alphabet_size=256)
  for chunk in _chunks(rows):
    passages = [store.text(row) for row in chunk]
    joined = [joined_tokens(passage).encode() for passage in passages]
    spans = functools.cache(lambda index, passages=passages: token_spans(passages[index]))
    matches = defaultdict(list)
    for number, index, offset in zip(*_located_matches(search, joined), strict=True):
      first = joined[index].count(b" ", 0, offset)
      last = first + sequences[number].count(b" ") - 2
      span = spans(index)[first][0], spans(index)[last][1]
      matches[index] += [(name, [span]) for name in wanted[sequences[number]]]
    _add_spans(matches, passages, chunk, store=store, found=found)


def _add_spans(
  matches: Mapping[int, Sequence[tuple[_Name, Sequence[tuple[int, int]]]]],
  texts: Sequence[str],
  chunk: np.ndarray,
  *,
  store: PassageStore,
  found: _Collector,
) -> None:
  """Records spans of characters, given by their index in a chunk, as those of wordpieces."""
  indices = sorted(matches)
  offsets = body_offsets(store, store.tokenizer, chunk[indices]) if matches else []
  for index, (starts, limits) in zip(indices, offsets, strict=True):
    to_byte = _byte_offsets(texts[index])
    for name, spans in matches[index]:
      pieces = [_covering(starts, limits, to_byte(a), to_byte(b)) for a, b in spans]
      firsts, lasts = np.array([piece for piece in pieces if piece], np.int32).reshape(-1, 2).T
      names = np.full(len(firsts), found.numbers[name])
      found.add(names, np.full(len(firsts), chunk[index]), firsts, lasts)


def _is_shown_by_wordpieces(text: str) -> bool:
  """Returns whether the wordpieces of a text end where its tokens end, and are equal if these are.

  Wordpieces are those of BERT's words, in lower case and without marks.
  """
  if text.isascii():
    return True
  lower = unicodedata.normalize("NFD", text.lower())
  bare = "".join(c for c in lower if unicodedata.category(c) not in ("Mn", "Cf"))
  return folded(text) == bare and not _ENDS_TOKEN.search(text)


def _rows_with_hidden_tokens(store: PassageStore, rows: np.ndarray) -> np.ndarray:
  tokenizer = store.tokenizer
  hidden = [not _is_shown_by_wordpieces(piece) for piece in tokenizer.vocabulary]
  hidden[tokenizer.unk_id] = True
  hidden_V, width = np.array(hidden), store.metadata.max_passage_length
  parts = [
    chunk[hidden_V[store.body_ids(chunk, length=width)[0]].any(axis=1)] for chunk in _chunks(rows)
  ]
  return np.concatenate([rows[:0], *parts])


def _without_open_ends(pattern: str) -> str:
  """Strips `.*` from both ends: the same texts match, but the span is the answer alone."""
  pattern = re.sub(r"^(\.\*)+(?![?+*{|)])", "", pattern)
  return re.sub(r"(?<![\\|(])(\.\*)+$", "", pattern)


def _byte_offsets(text: str) -> Callable[[int], int]:
  if text.isascii():
    return lambda offset: offset
  return lambda offset: len(text[:offset].encode())


def _covering(starts, limits, start: int, limit: int) -> tuple[int, int] | None:
  """Returns the first and last wordpiece that overlap the bytes `[start, limit)`."""
  covered = np.flatnonzero((starts < limit) & (limits > start))
  return (int(covered[0]), int(covered[-1])) if len(covered) else None


def _located_matches(
  search: SequenceSearch, texts: list[bytes]
) -> tuple[list[int], list[int], list[int]]:
  """Returns the indices of the sequences found, of the texts that have them, and where there."""
  starts = np.cumsum([0, *(len(text) + 1 for text in texts)])
  positions, numbers = search.find(np.frombuffer(_NO_TEXT.join(texts), np.uint8))
  holders = np.searchsorted(starts, positions, side="right") - 1
  return numbers.tolist(), holders.tolist(), (positions - starts[holders]).tolist()
