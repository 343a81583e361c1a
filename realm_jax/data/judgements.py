"""Retrieval test collections: queries, and judgements of the documents relevant to them.

BEIR (Thakur et al. 2021) has `queries.jsonl` and `qrels/SPLIT.tsv`; TREC's qrels have four columns.
"""

import json
import os
import re
from collections.abc import Container, Mapping

from realm_jax.data.questions import Question, read_lines

# Query id to document name to grade; grades above 0 are relevant.
Judgements = Mapping[str, Mapping[str, int]]
# How the last column is called by those who write a header.
_HEADERS = ("score", "grade", "rel", "relevance", "relevancy", "label", "judgment", "judgement")


def read_judgements(path: str | os.PathLike) -> Judgements:
  """Reads BEIR's table (a header, then query, document and grade) or TREC's qrels.

  Tabs separate columns where there are any, so that names may have spaces; spaces do elsewhere.

  Raises:
    FileNotFoundError: If the file is missing.
    ValueError: If a line is not a judgement or contradicts another, or there are none.
  """
  judgements: dict[str, dict[str, int]] = {}
  is_first = True
  for number, line in enumerate(read_lines(path), 1):
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
  for number, line in enumerate(read_lines(path), 1):
    if not line.strip():
      continue
    try:
      record = json.loads(line)
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
