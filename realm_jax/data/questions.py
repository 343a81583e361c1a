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
from collections.abc import Container, Mapping, Sequence

from realm_jax.data.answers import compile_answer
from realm_jax.foundations import hub, object_store, text_files
from realm_jax.text.wordpieces import MASK

MANIFEST_FILE = "questions_manifest.json"
_FORMAT = (
  "write `question` and `answer` (a string, a list of strings, or an object with `value` and "
  "`aliases` or with `text`), or, for a masked sentence, "
  "`text`, `spans` (one, [[start, limit]] in bytes) and `answer`"
)

# Query id to document name to grade; grades above 0 are relevant.
Judgements = Mapping[str, Mapping[str, int]]
_LARGEST_GRADE = 1_000_000  # what computes metrics takes memory by it, and counts others as none
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
      record = text_files.parse_json(line)
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
  expected = text_files.read_json(manifest)["files"].get(file.name)
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
      if abs(grade) > _LARGEST_GRADE:
        raise ValueError(f"the grade is beyond {_LARGEST_GRADE:,}")
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
      record = text_files.parse_json(line)
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
