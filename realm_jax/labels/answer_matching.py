"""Which passages hold an answer, and where: found once, before training or evaluation.

Answers are looked for as wordpieces in the passage store, in one pass over it for all questions
together; no passage is tokenized for it. Regular expressions, and answers with a character that the
vocabulary lacks, are looked for in the raw text, and only the passages that match are tokenized, to
turn bytes into wordpieces.

The original used two rules (specification, 7.3): it labelled a passage by case-sensitive substrings
of its raw text, a span by its wordpieces, both without a look at the borders of words.
"""

import bisect
import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

import numpy as np

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.corpus.wordpiece_offsets import body_offsets
from realm_jax.data.answers import compile_answer
from realm_jax.labels.pattern_literals import fold, required_literals
from realm_jax.labels.sequence_search import SequenceSearch

Rule = Literal["words", "original"]

_ROWS_AT_ONCE = 8192
_RAGGED = ("occurrences", "holders", "questions")
_NO_TEXT = b"\xff"  # never occurs in UTF-8


_Name = tuple[str, str]  # how it is looked for ("wordpieces", "text" or "regex"), and the answer


class HasAnswers(Protocol):
  """What is matched of a question: its answers, and whether they are regular expressions."""

  answers: tuple[str, ...]
  regex: bool


@dataclasses.dataclass(frozen=True)
class _Answer:
  """Where one answer occurs.

  Attributes:
    occurrences: int32 `[n, 3]`, sorted by row: row, first and last wordpiece.
    holders: int32, sorted: the rows that count as holding it.
  """

  occurrences: np.ndarray
  holders: np.ndarray


class AnswerMatcher:
  """Tells where the answers of questions occur; questions are named by their positions.

  Args:
    answers: all that occur.
    of_questions: which of them are a question's, for each question.

  Attributes:
    unanswerable: questions that no passage holds an answer of.
  """

  def __init__(self, answers: Sequence[_Answer], of_questions: Sequence[Sequence[int]]):
    self._answers = answers
    self._of_questions = of_questions
    self.unanswerable = sum(
      not any(len(answers[place].holders) for place in places) for places in of_questions
    )

  @classmethod
  def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "AnswerMatcher":
    """Makes the matcher again of which `arrays` are.

    Raises:
      ValueError: if they are not those of a matcher.
    """
    try:
      occurrences, holders, questions = (_parts(arrays, name) for name in _RAGGED)
      answers = [_Answer(*each) for each in zip(occurrences, holders, strict=True)]
      return cls(answers, [places.tolist() for places in questions])
    except (KeyError, IndexError, ValueError) as error:
      raise ValueError(f"these arrays hold no labels of questions: {error!r}") from error

  def arrays(self) -> dict[str, np.ndarray]:
    """Returns int32 arrays that say all: parts one after the other, and the length of each."""
    ragged = (
      [answer.occurrences for answer in self._answers],
      [answer.holders for answer in self._answers],
      [np.array(places, np.int32) for places in self._of_questions],
    )
    arrays = {}
    for name, parts in zip(_RAGGED, ragged, strict=True):
      empty = np.zeros((0, 3) if name == "occurrences" else 0, np.int32)
      arrays[name] = np.concatenate([empty, *parts])
      arrays[f"{name}_lengths"] = np.array([len(part) for part in parts], np.int32)
    return arrays

  def contains(self, question_index_B: np.ndarray, ids_BxR: np.ndarray) -> np.ndarray:
    """Returns bool `[B, R]`: whether a passage holds an answer; False for ids below 0."""
    found_BxR = np.zeros(ids_BxR.shape, bool)
    for found_R, index, ids_R in zip(found_BxR, question_index_B, ids_BxR, strict=True):
      for place in self._of_questions[int(index)]:
        rows = self._answers[place].holders
        if len(rows):
          places = np.minimum(np.searchsorted(rows, ids_R), len(rows) - 1)
          found_R |= rows[places] == ids_R
    return found_BxR

  def spans(self, question_index: int, row: int) -> np.ndarray:
    """Returns int32 `[n, 2]`: first and last body wordpiece of each occurrence, sorted."""
    spans = set()
    for place in self._of_questions[question_index]:
      occurrences = self._answers[place].occurrences
      rows = occurrences[:, 0]
      first, limit = bisect.bisect_left(rows, row), bisect.bisect_right(rows, row)
      spans.update(map(tuple, occurrences[first:limit, 1:].tolist()))
    return np.array(sorted(spans), np.int32).reshape(-1, 2)


def match_answers(
  questions: Sequence[HasAnswers],
  *,
  store: PassageStore,
  tokenizer,
  rule: Rule = "words",
  rows: np.ndarray | None = None,
) -> AnswerMatcher:
  """Looks for all answers in a passage store.

  Args:
    questions: with their answers.
    store: the knowledge corpus.
    tokenizer: the one that made it.
    rule: "words" finds an answer's wordpieces where they begin and end with words, for passages and
      spans alike; "original" finds wordpieces anywhere for spans, and labels passages by
      case-sensitive substrings. Regular expressions are searched in the raw text either way.
    rows: the only rows to look at; none: all.

  Raises:
    ValueError: if the store was made with another vocabulary.
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
  if rule == "words":
    unknown = [text for text in texts if tokenizer.unk_id in ids[text]]
    patterns |= {("text", text): rf"(?<!\w){re.escape(text)}(?!\w)" for text in unknown}
  found = _Collector()
  _find_wordpieces(
    {
      ("wordpieces", text): tuple(i.tolist())
      for text, i in ids.items()
      if len(i) and tokenizer.unk_id not in i
    },
    store=store,
    tokenizer=tokenizer,
    rows=rows,
    whole_words=rule == "words",
    found=found,
  )
  _find_patterns(patterns, store=store, tokenizer=tokenizer, rows=rows, found=found)
  occurrences = found.occurrences()
  holding = {name: np.unique(found[:, 0]) for name, found in occurrences.items()}
  if rule == "original":
    holding = {name: holding[name] for name in patterns if name in holding}
    holding |= _rows_with_substring(texts, store=store, rows=rows)
  names = [
    [(way, a) for a in q.answers for way in (("regex",) if q.regex else ("wordpieces", "text"))]
    for q in questions
  ]
  places = {name: place for place, name in enumerate(sorted(occurrences.keys() | holding.keys()))}
  answers = [
    _Answer(
      occurrences.get(name, np.zeros((0, 3), np.int32)),
      holding.get(name, np.zeros(0, np.int32)).astype(np.int32),
    )
    for name in places
  ]
  return AnswerMatcher(answers, [[places[n] for n in of_one if n in places] for of_one in names])


def _parts(arrays: Mapping[str, np.ndarray], name: str) -> list[np.ndarray]:
  values, lengths = np.asarray(arrays[name]), arrays[f"{name}_lengths"]
  if lengths.sum() != len(values):
    raise ValueError(f"{name} has {len(values)} rows, not {lengths.sum()}")
  return np.split(values, np.cumsum(lengths)[:-1]) if len(lengths) else []


class _Collector:
  """Gathers occurrences chunk by chunk, in the order of rows."""

  def __init__(self):
    self._parts = defaultdict(list)

  def add(self, name: _Name, rows: np.ndarray, firsts: np.ndarray, lasts: np.ndarray) -> None:
    self._parts[name].append(np.stack([rows, firsts, lasts], axis=1).astype(np.int32))

  def occurrences(self) -> dict[_Name, np.ndarray]:
    return {name: np.concatenate(parts) for name, parts in self._parts.items()}


def _chunks(rows: np.ndarray) -> Iterator[np.ndarray]:
  for first in range(0, len(rows), _ROWS_AT_ONCE):
    yield rows[first : first + _ROWS_AT_ONCE]


def _grouped(numbers: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
  """Yields each number with the places where it stands, in order."""
  order = np.argsort(numbers, kind="stable")
  borders = np.flatnonzero(np.diff(numbers[order])) + 1
  for places in np.split(order, borders):
    if len(places):
      yield int(numbers[places[0]]), places


def _find_wordpieces(
  ids: dict[_Name, tuple[int, ...]], *, store, tokenizer, rows, whole_words: bool, found: _Collector
) -> None:
  if not ids:
    return
  names = defaultdict(list)  # texts that differ only in case, accents or spacing
  for name, sequence in ids.items():
    names[sequence].append(name)
  sequences = list(names)
  lengths = np.array([len(sequence) for sequence in sequences])
  search = SequenceSearch(sequences, alphabet_size=tokenizer.vocab_size)
  inside_word = np.array([piece.startswith("##") for piece in tokenizer.vocabulary])
  # One column more than any body has: a sequence never runs on into the next row.
  width = store.metadata.max_passage_length + 1
  for chunk in _chunks(rows):
    values = store.body_ids(chunk, length=width)[0].reshape(-1)
    positions, numbers = search.find(values)
    if whole_words:
      ends = np.minimum(positions + lengths[numbers], len(values) - 1)
      whole = ~inside_word[values[ends]]
      positions, numbers = positions[whole], numbers[whole]
    order = np.argsort(positions, kind="stable")
    positions, numbers = positions[order], numbers[order]
    for number, places in _grouped(numbers):
      firsts = positions[places] % width
      for name in names[sequences[number]]:
        found.add(
          name, chunk[positions[places] // width], firsts, firsts + len(sequences[number]) - 1
        )


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
    candidates = {(place, name) for place in range(len(texts)) for name in everywhere}
    for number, places in _rows_of_matches(search, [fold(text).encode() for text in texts]):
      candidates |= {
        (place, name) for place in places.tolist() for name in by_literal[literals[number]]
      }
    matches = defaultdict(list)
    for place, name in sorted(candidates):
      spans = [m.span() for m in compiled[name].finditer(texts[place]) if m.end() > m.start()]
      if spans:
        matches[place].append((name, spans))
    offsets = body_offsets(store, tokenizer, chunk[list(matches)]) if matches else []
    for (place, of_row), (starts, limits) in zip(matches.items(), offsets, strict=True):
      to_byte = _byte_offsets(texts[place])
      for name, spans in of_row:
        pieces = [_covering(starts, limits, to_byte(a), to_byte(b)) for a, b in spans]
        firsts, lasts = np.array([piece for piece in pieces if piece], np.int32).reshape(-1, 2).T
        found.add(name, np.full(len(firsts), chunk[place]), firsts, lasts)


def _without_open_ends(pattern: str) -> str:
  """Leaves out `.*` at both ends: the same texts match, and the span is the answer alone."""
  pattern = re.sub(r"^(\.\*)+(?![?+*{|)])", "", pattern)
  return re.sub(r"(?<![\\|(])(\.\*)+$", "", pattern)


def _byte_offsets(text: str) -> Callable[[int], int]:
  if text.isascii():
    return lambda offset: offset
  return lambda offset: len(text[:offset].encode())


def _covering(starts, limits, start: int, limit: int) -> tuple[int, int] | None:
  """Returns first and last wordpiece that share a byte with `[start, limit)`."""
  places = np.flatnonzero((starts < limit) & (limits > start))
  return (int(places[0]), int(places[-1])) if len(places) else None


def _rows_of_matches(
  search: SequenceSearch, texts: list[bytes]
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields each sequence that occurs, with the places of the texts that hold it."""
  starts = np.cumsum([0, *(len(text) + 1 for text in texts)])
  positions, numbers = search.find(np.frombuffer(_NO_TEXT.join(texts), np.uint8))
  holders = np.searchsorted(starts, positions, side="right") - 1
  for number, places in _grouped(numbers):
    yield number, np.unique(holders[places])


def _rows_with_substring(texts: list[str], *, store, rows) -> dict[_Name, np.ndarray]:
  if not texts:
    return {}
  search = SequenceSearch([text.encode() for text in texts], alphabet_size=256)
  parts = defaultdict(list)
  for chunk in _chunks(rows):
    raw = [store.text(row).encode() for row in chunk]
    for number, places in _rows_of_matches(search, raw):
      parts["text", texts[number]].append(chunk[places])
  return {name: np.concatenate(part) for name, part in parts.items()}
