"""Finds which passages contain an answer, and where, once before training or evaluation.

A passage has an answer if `text.answer_tokens` says so. One pass over the wordpieces of the passage
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
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import regex

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.corpus.wordpiece_offsets import body_offsets
from realm_jax.data.answers import MatchingClock, compile_answer
from realm_jax.data.questions import Question
from realm_jax.evaluation.grouped_rows import GroupedRows, RowCollector
from realm_jax.evaluation.pattern_literals import fold, required_literals
from realm_jax.evaluation.sequence_search import SequenceSearch
from realm_jax.text import answer_tokens, scripts

_ROWS_AT_ONCE = 8192
_PARTS = ("occurrences", "questions")
_NO_TEXT = b"\xff"  # never occurs in UTF-8


# These end a token, but no word of BERT's.
_ENDS_TOKEN = regex.compile(rf"[\p{{S}}--\p{{ASCII}}]|[{scripts.UNSPACED}--\p{{Han}}]", regex.V1)

_Name = tuple[str, str]  # how to search ("wordpieces", "text" or "regex"), and the answer


class AnswerMatcher:
  """Knows where the answers of questions occur; questions are identified by position.

  Args:
    occurrences: Row, first and last wordpiece of each occurrence, by answer, sorted by row.
    questions: The answers of each question.

  Attributes:
    unanswerable: Number of questions without an answer in any passage.
  """

  def __init__(self, occurrences: GroupedRows, questions: GroupedRows):
    self._occurrences = occurrences
    self._questions = questions
    occurs = occurrences.lengths > 0
    self.unanswerable = sum(not occurs[questions[i]].any() for i in range(len(questions)))

  @classmethod
  def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "AnswerMatcher":
    """Restores a matcher from its `arrays`."""
    try:
      return cls(*(GroupedRows(arrays[name], arrays[f"{name}_lengths"]) for name in _PARTS))
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
  questions: Sequence[Question],
  *,
  store: PassageStore,
  tokenizer,
  rows: np.ndarray | None = None,
) -> AnswerMatcher:
  """Searches a passage store for all answers, in whole tokens.

  Args:
    tokenizer: The tokenizer that made it.
    rows: Rows to search; None searches all.

  Raises:
    ValueError: If the store was made with another vocabulary.
  """
  if tokenizer.digest != store.metadata.vocabulary_digest:
    raise ValueError(
      f"{store.directory} was made with vocabulary {store.metadata.vocabulary_digest}, not "
      f"{tokenizer.digest}; match answers with the vocabulary of the corpus"
    )
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
  _find_wordpieces(wordpieces, tokenizer=tokenizer, **searched)
  hidden = [text for text in texts if not shown[text]]
  _find_tokens(hidden, tokenizer=tokenizer, **searched)
  rest = [text for text in texts if shown[text]]
  rows = _rows_with_hidden_tokens(store, rows, tokenizer) if rest else rows[:0]
  _find_tokens(rest, tokenizer=tokenizer, **{**searched, "rows": rows})
  _find_patterns(patterns, tokenizer=tokenizer, **searched)
  answers = [[found.numbers[name] for name in of_one] for of_one in names]
  lengths = np.array([len(of_one) for of_one in answers], np.int64)
  wanted = GroupedRows(np.fromiter(itertools.chain(*answers), np.int32), lengths)
  return AnswerMatcher(found.grouped(), wanted)


class _Collector:
  """Collects the matches of each name, known by its number, chunk by chunk in row order."""

  def __init__(self, names: Sequence[_Name]):
    self.numbers = {name: number for number, name in enumerate(names)}
    self._occurrences = RowCollector(len(names), width=3)

  def add(self, numbers: np.ndarray, rows: np.ndarray, firsts, lasts) -> None:
    """Records where the names at these numbers occur in rows of a chunk."""
    self._occurrences.add(numbers, np.column_stack([rows, firsts, lasts]))

  def grouped(self) -> GroupedRows:
    """Returns the occurrences of each name."""
    return self._occurrences.grouped()


def _chunks(rows: np.ndarray) -> Iterator[np.ndarray]:
  for first in range(0, len(rows), _ROWS_AT_ONCE):
    yield rows[first : first + _ROWS_AT_ONCE]


def _find_wordpieces(
  ids: dict[_Name, tuple[int, ...]], *, store, tokenizer, rows, found: _Collector
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
  search = SequenceSearch(names, alphabet_size=tokenizer.vocab_size)
  inside_word = np.array([piece.startswith("##") for piece in tokenizer.vocabulary])
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
  patterns: dict[_Name, str], *, store, tokenizer, rows, found: _Collector
) -> None:
  if not patterns:
    return
  compiled = {name: compile_answer(_without_open_ends(p)) for name, p in patterns.items()}
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
    with MatchingClock() as clock:
      for index, name in sorted(candidates):
        clock.begin(patterns[name], texts[index])
        spans = [m.span() for m in compiled[name].finditer(texts[index]) if m.end() > m.start()]
        if spans:
          matches[index].append((name, spans))
    _add_spans(matches, texts, chunk, store=store, tokenizer=tokenizer, found=found)


def _find_tokens(texts: Sequence[str], *, store, tokenizer, rows, found: _Collector) -> None:
  """Finds answers in the texts of passages."""
  wanted = defaultdict(list)
  for text in texts:
    tokens = answer_tokens.joined(text)
    if not tokens.isspace():
      wanted[tokens.encode()].append(("text", text))
  if not wanted:
    return
  sequences = list(wanted)
  search = SequenceSearch(sequences, alphabet_size=256)
  for chunk in _chunks(rows):
    passages = [store.text(row) for row in chunk]
    joined = [answer_tokens.joined(passage).encode() for passage in passages]
    spans = functools.cache(lambda index, passages=passages: answer_tokens.spans(passages[index]))
    matches = defaultdict(list)
    for number, index, offset in zip(*_located_matches(search, joined), strict=True):
      first = joined[index].count(b" ", 0, offset)
      last = first + sequences[number].count(b" ") - 2
      span = spans(index)[first][0], spans(index)[last][1]
      matches[index] += [(name, [span]) for name in wanted[sequences[number]]]
    _add_spans(matches, passages, chunk, store=store, tokenizer=tokenizer, found=found)


def _add_spans(
  matches: Mapping[int, Sequence[tuple[_Name, Sequence[tuple[int, int]]]]],
  texts: Sequence[str],
  chunk: np.ndarray,
  *,
  store,
  tokenizer,
  found: _Collector,
) -> None:
  """Records spans of characters, given by their index in a chunk, as those of wordpieces."""
  indices = sorted(matches)
  offsets = body_offsets(store, tokenizer, chunk[indices]) if matches else []
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
  return answer_tokens.fold(text) == bare and not _ENDS_TOKEN.search(text)


def _rows_with_hidden_tokens(store, rows: np.ndarray, tokenizer) -> np.ndarray:
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
