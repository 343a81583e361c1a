"""Questions of files: with known answers (Open-QA), with judged documents, and masked sentences.

Of retrieval test collections, BEIR (Thakur et al. 2021) has `queries.jsonl` and `qrels/SPLIT.tsv`;
TREC's qrels have four columns.
"""

import collections
import dataclasses
import hashlib
import itertools
import json
import os
import random
import re
from collections.abc import Container, Iterator, Mapping, Sequence

import numpy as np

from realm_jax.data.answers import compile_answer
from realm_jax.data.batches import tokens
from realm_jax.devices.datatypes import MaskedQueries, Questions, Tokens
from realm_jax.foundations import hub, object_store, text_files
from realm_jax.text.wordpieces import MASK, Tokenizer

MANIFEST_FILE = "questions_manifest.json"
_FORMAT = (
  "write `question` and `answer` (a string, a list of strings, or an object with `value` and "
  "`aliases` or with `text`), or, for a masked sentence, "
  "`text`, `spans` (one, [[start, limit]] in bytes) and `answer`"
)

# Query id to document name to grade; grades above 0 are relevant.
Judgements = Mapping[str, Mapping[str, int]]
# How the last column of judgements is called by those who write a header.
_HEADERS = ("score", "grade", "rel", "relevance", "relevancy", "label", "judgment", "judgement")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
  """A question, or a masked sentence that asks for one of its spans.

  Attributes:
    text: The question, or the whole sentence including the answer.
    answers: Correct answers; any of them counts. Empty if unknown.
    regex: Whether the answers are regular expressions.
    span: Byte offsets `(start, limit)` of the answer in the sentence; None for a question.
    passage: A sentence of the knowledge corpus with the answer; empty if unknown.
    group: Metrics are also reported for each group.
    record: All fields of its line in the file.
  """

  id: str
  text: str
  answers: tuple[str, ...]
  regex: bool = False
  span: tuple[int, int] | None = None
  passage: str = ""
  group: str = ""
  record: Mapping = dataclasses.field(default_factory=dict, compare=False, repr=False)

  @property
  def answer(self) -> str:
    return self.answers[0]

  @property
  def masked_text(self) -> str:
    """The text; a sentence with its span masked."""
    if self.span is None:
      return self.text
    raw = self.text.encode()
    start, limit = self.span
    return raw[:start].decode() + MASK + raw[limit:].decode()


def read_questions(path: str | os.PathLike, *, answers_known: bool = True) -> list[Question]:
  """Reads questions or masked sentences from JSON Lines, plain or gzip.

  A question has `question` and `answer` (see `answer_texts`), and may have `regex`. A masked
  sentence has `text`, `spans` (one) and `answer`. Both may have `id`, `passage` and `kind`. Null
  and NaN are read as missing, and a repeated `id` gets a number, `ID-2`. If its directory has a
  manifest, the file must match it.

  Raises:
    FileNotFoundError: If the file is missing.
    ValueError: If a line is not a question, an answer is an invalid regular expression, there is no
      question, questions and masked sentences are mixed, or the file is damaged or does not match
      its manifest.
  """
  path = hub.fetch_files(path)
  try:
    content = object_store.absolute(path).read_bytes()
  except FileNotFoundError as error:
    raise FileNotFoundError(f"no questions at {path}") from error
  digest = hashlib.sha256(content).hexdigest()
  questions = []
  for number, line in enumerate(text_files.decoded(content, path).split("\n"), 1):
    if not line.strip():
      continue
    try:
      record = json.loads(line)
      questions.append(from_record(record, number=number, answers_known=answers_known))
    except json.JSONDecodeError as error:
      raise ValueError(
        f"{path}, line {number} is not JSON ({error.msg} at column {error.colno}); {_FORMAT}"
      ) from error
    except ValueError as error:
      raise ValueError(f"{path}, line {number} is not a question: {error}") from error
  if not questions:
    raise ValueError(f"{path} has no questions")
  if len({question.span is None for question in questions}) > 1:
    raise ValueError(f"{path} mixes questions with masked sentences; split it into two files")
  _check_manifest(path, digest, len(questions))
  return _with_own_ids(questions)


def sampled(questions: list[Question], limit: int | None) -> list[Question]:
  """Samples at most `limit` of the questions, always the same ones; None returns all."""
  if limit is not None and limit < 1:
    raise ValueError(f"max_questions={limit}; give at least 1, or none for all")
  if limit is None or len(questions) <= limit:
    return questions
  return random.Random(0).sample(questions, limit)


def texts_digest(questions: Sequence[Question]) -> str:
  """Returns a digest of the questions of a file in order, regardless of their answers."""
  return hashlib.sha256("\n".join(question.text for question in questions).encode()).hexdigest()[:8]


def answers_digest(questions: Sequence[Question]) -> str:
  """Returns a digest of the answers of questions in order."""
  answers = json.dumps([(question.answers, question.regex) for question in questions])
  return hashlib.sha256(answers.encode()).hexdigest()[:8]


def from_record(record: dict, *, number: int, answers_known: bool = True) -> Question:
  """Makes a question from a record of JSON Lines, named by its number if it has no `id`.

  Raises:
    ValueError: If it is not a question.
  """
  try:
    if "question" in record:
      text, span = record["question"], None
    else:
      text, (start, limit) = record["text"], record["spans"][0]
      span = start, limit
    answers = answer_texts(record["answer"] if answers_known else record.get("answer"))
    empty = not all(part.strip() for part in (text, *answers))
  except (AttributeError, LookupError, TypeError, ValueError) as error:
    raise ValueError(f"{str(record)[:80]}; {_FORMAT}") from error
  if empty:
    raise ValueError("the question or an answer is empty")
  try:
    "".join((text, *answers)).encode()
  except UnicodeEncodeError as error:
    raise ValueError("it has half of a surrogate pair, which is not Unicode") from error
  if answers_known and not answers:
    raise ValueError("it has no answer")
  regex = False if is_missing(record.get("regex")) else record["regex"]
  if not isinstance(regex, bool):
    raise ValueError(f"`regex` is {regex!r}; write true or false")
  for answer in answers if regex else ():
    compile_answer(answer)
  return Question(
    id=str(number if is_missing(record.get("id")) else record["id"]),
    text=text,
    answers=answers,
    regex=regex,
    span=span,
    passage="" if is_missing(record.get("passage")) else record["passage"],
    group="" if is_missing(record.get("kind")) else str(record["kind"]),
    record=record,
  )


def answer_texts(answer) -> tuple[str, ...]:
  """Returns the answers in a record's `answer`; none if it is missing.

  It is a text, a list of them, or an object as in the hub's TriviaQA (`value`, `aliases`) and SQuAD
  (`text`).

  Raises:
    TypeError: If it is none of them.
  """
  if isinstance(answer, Mapping):
    known = [answer[name] for name in ("value", "aliases", "text") if name in answer]
    if not known:
      raise TypeError(f"an object of {', '.join(answer)}")
    return tuple(dict.fromkeys(itertools.chain(*map(answer_texts, known))))
  if is_missing(answer):
    return ()
  return (answer,) if isinstance(answer, str) else tuple(answer)


def is_missing(value) -> bool:
  """Returns whether a field of a record has no value, as tables write it: null, NaN or no text."""
  return value is None or value == "" or value != value


def _with_own_ids(questions: Sequence[Question]) -> list[Question]:
  """Returns questions whose ids differ: metrics and files of other programs go by them."""
  taken, seen = {question.id for question in questions}, collections.Counter[str]()
  kept = []
  for question in questions:
    id = question.id
    seen[question.id] += 1
    while seen[question.id] > 1 and id in taken:
      id = f"{question.id}-{seen[question.id]}"
      seen[question.id] += id in taken
    taken.add(id)
    kept.append(dataclasses.replace(question, id=id))
  return kept


def _check_manifest(path: str, digest: str, num_questions: int) -> None:
  file = object_store.absolute(path)
  manifest = file.parent / MANIFEST_FILE
  if not manifest.exists():
    return
  expected = json.loads(manifest.read_text())["files"].get(file.name)
  if expected and (expected["questions"], expected["sha256"]) != (num_questions, digest):
    raise ValueError(
      f"{path} does not match {MANIFEST_FILE}: it has {num_questions} questions with SHA-256 "
      f"{digest[:12]} instead of {expected['questions']} with {expected['sha256'][:12]}; make both "
      "again with `realm prepare_questions`"
    )


def read_judgements(path: str | os.PathLike) -> Judgements:
  """Reads BEIR's table (a header, then query, document and grade) or TREC's qrels.

  Tabs separate columns where there are any, so that names may have spaces; spaces do elsewhere.

  Raises:
    FileNotFoundError: If the file is missing.
    ValueError: If a line is not a judgement or contradicts another, or there are none.
  """
  judgements: dict[str, dict[str, int]] = {}
  is_first = True
  for number, line in enumerate(text_files.read_lines(path), 1):
    columns = columns_of(line, least=3)
    if not any(columns):
      continue
    is_header, is_first = is_first and columns[-1].lower() in _HEADERS, False
    if is_header:
      continue
    try:
      query, *iteration, document, written = columns
      if len(iteration) > 1:
        raise ValueError(f"{len(columns)} columns")
      grade = int(re.sub(r"\.0+$", "", written))
    except ValueError as error:
      raise ValueError(
        f"{os.fspath(path)}, line {number} is not a judgement ({error}); write query, document and "
        "grade (BEIR), or query, 0, document and grade (TREC), with tabs if a name has spaces"
      ) from error
    before = judgements.setdefault(query, {}).setdefault(document, grade)
    if before != grade:
      raise ValueError(
        f"{os.fspath(path)}, line {number} grades document {document!r} {grade} for query "
        f"{query!r}, which an earlier line grades {before}; keep one of the two"
      )
  if not judgements:
    raise ValueError(f"{os.fspath(path)} has no judgements")
  return judgements


def read_queries(path: str | os.PathLike, judgements: Judgements) -> list[Question]:
  """Reads the judged queries, in file order, from JSON Lines of `_id` and `text`.

  Raises:
    FileNotFoundError: If the file is missing.
    ValueError: If a line is not a query, or a judged query is missing.
  """
  queries: dict[str, Question] = {}
  for number, line in enumerate(text_files.read_lines(path), 1):
    if not line.strip():
      continue
    try:
      record = json.loads(line)
      if is_missing(record["_id"]):
        raise ValueError("no id")
      query = Question(id=str(record["_id"]), text=record["text"], answers=())
      query.text.encode()
    except (ValueError, LookupError, TypeError, AttributeError) as error:
      raise ValueError(
        f"{os.fspath(path)}, line {number} is not a query: {line[:80]}; write JSON with `_id` and "
        "`text`"
      ) from error
    before = queries.setdefault(query.id, query)
    if before.text != query.text:
      raise ValueError(
        f"{os.fspath(path)}, line {number} has another query with id {query.id!r}; keep one of the "
        f"two: {before.text[:40]!r}, {query.text[:40]!r}"
      )
  missing = judgements.keys() - queries.keys()
  if missing:
    raise ValueError(
      f"{os.fspath(path)} lacks {len(missing)} of the {len(judgements)} judged queries, such as "
      f"{min(missing)!r}; give the queries of the same collection"
    )
  return [query for query in queries.values() if query.id in judgements]


def columns_of(line: str, *, least: int) -> list[str]:
  """Returns the columns of a line, which tabs separate if it has so many, and else spaces."""
  columns = line.split("\t")
  if len(columns) < least:
    columns = [column for column in re.split(r"[ \t]+", line) if column]
  return [column.strip(" ") for column in columns]


def describe_missing(judgements: Judgements, names: Container[str], *, source: str) -> str:
  """Says how many of the documents judged relevant a source lacks; "" if it has all."""
  relevant = {name for grades in judgements.values() for name, grade in grades.items() if grade > 0}
  missing = sorted(name for name in relevant if name not in names)
  if not missing:
    return ""
  return (
    f"{len(missing):,} of {len(relevant):,} documents judged relevant are not in {source}, such as "
    f"{missing[0]!r}; they count as misses"
  )


def encode_questions(texts: Sequence[str], tokenizer: Tokenizer) -> list[np.ndarray]:
  """Returns the wordpieces of questions; a literal `[MASK]` becomes the mask token."""
  return [
    tokenizer.encode(text) if MASK in text else ids
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True)
  ]


def question_batches(
  texts: Sequence[str], *, tokenizer: Tokenizer, query_length: int, batch_size: int
) -> Iterator[tuple[Questions, np.ndarray]]:
  """Yields padded batches of questions with bool `[n]`: which questions were truncated."""
  encoded = encode_questions(texts, tokenizer)
  places = np.arange(batch_size)
  for first in range(0, len(texts), batch_size):
    rows = encoded[first : first + batch_size]
    batch = Questions(
      query=_padded(rows, tokenizer, query_length, batch_size),
      index_B=np.minimum(first + places, len(texts) - 1).astype(np.int32),
      weights_B=(places < len(rows)).astype(np.float32),
    )
    yield batch, np.array([len(ids) > query_length - 2 for ids in rows])


def masked_query_batches(
  questions: Sequence[Question],
  *,
  tokenizer: Tokenizer,
  query_length: int,
  max_masks: int,
  batch_size: int,
) -> Iterator[tuple[Sequence[Question], MaskedQueries]]:
  """Yields questions and their masked queries; pads the last batch with empty queries.

  Only the first `max_masks` wordpieces of a longer answer are predicted; the others stay hidden.

  Raises:
    ValueError: If an answer has no wordpiece, or does not fit into `query_length`.
  """
  for first in range(0, len(questions), batch_size):
    batch = questions[first : first + batch_size]
    encoded = tokenizer.encode_with_offsets([question.text for question in batch])
    rows = []
    for question, (ids, starts, limits) in zip(batch, encoded, strict=True):
      assert question.span is not None, "only sentences with a span are masked"
      start, limit = question.span
      masked = (starts >= start) & (starts < limit) & (limits <= limit)
      positions = np.flatnonzero(masked)
      if not len(positions) or positions[-1] >= query_length - 2:
        raise ValueError(
          f"question {question.id!r}: the answer {question.answer!r} takes wordpieces "
          f"{positions.tolist()}; a query holds {query_length - 2}, so leave it out (`realm "
          "mask_sentences --max_words` draws shorter sentences)"
        )
      kept = positions[:max_masks]
      rows.append((np.where(masked, tokenizer.mask_id, ids), kept, ids[kept]))
    yield batch, _masked_queries(rows, tokenizer, query_length, max_masks, batch_size)


def masked_text_query(
  text: str, *, num_masks: int, tokenizer: Tokenizer, query_length: int, max_masks: int
) -> MaskedQueries:
  """Makes the query `[1, L]` of a text whose `[MASK]` stands for `num_masks` wordpieces.

  Raises:
    ValueError: If the text does not have exactly one `[MASK]`, or is too long.
  """
  if not 0 < num_masks <= max_masks:
    raise ValueError(f"num_masks={num_masks}; use 1 to {max_masks}")
  if text.count(MASK) != 1:
    raise ValueError(
      f"{text!r} has {text.count(MASK)} {MASK}; write exactly one, where the answer goes"
    )
  ids = tokenizer.encode(text.replace(MASK, MASK * num_masks))
  positions = np.flatnonzero(ids == tokenizer.mask_id)
  if positions[-1] >= query_length - 2:
    raise ValueError(
      f"{text!r} is too long: the answer must lie in the first {query_length - 2} wordpieces"
    )
  rows = [(ids, positions, ids[positions])]
  return _masked_queries(rows, tokenizer, query_length, max_masks, 1)


def _masked_queries(
  rows, tokenizer: Tokenizer, query_length: int, max_masks: int, batch_size: int
) -> MaskedQueries:
  """Makes queries from rows of ids, mask positions and targets."""
  positions_BxM = np.zeros((batch_size, max_masks), np.int32)
  targets_BxM = np.zeros((batch_size, max_masks), np.int32)
  weights_BxM = np.zeros((batch_size, max_masks), np.float32)
  for row, (_, positions, targets) in enumerate(rows):
    positions_BxM[row, : len(positions)] = positions + 1
    targets_BxM[row, : len(positions)] = targets
    weights_BxM[row, : len(positions)] = 1
  return MaskedQueries(
    query=_padded([ids for ids, _, _ in rows], tokenizer, query_length, batch_size),
    mlm_positions_BxM=positions_BxM,
    mlm_targets_BxM=targets_BxM,
    mlm_weights_BxM=weights_BxM,
    source_uid_B=np.zeros(batch_size, np.int64),
  )


def _padded(
  rows: Sequence[np.ndarray], tokenizer: Tokenizer, query_length: int, batch_size: int
) -> Tokens:
  """Makes `[CLS] ids [SEP]` of each row, and empty queries for missing rows."""
  ids_BxL = np.zeros((batch_size, query_length), np.int32)
  ids_BxL[:, :2] = tokenizer.cls_id, tokenizer.sep_id
  for row, ids in enumerate(rows):
    kept = ids[: query_length - 2]
    ids_BxL[row, 1 : 1 + len(kept)] = kept
    ids_BxL[row, 1 + len(kept)] = tokenizer.sep_id
  return tokens(ids_BxL)
