"""Retrieval test collections: queries, and judgements of the documents relevant to them.

BEIR (Thakur et al. 2021) has `queries.jsonl` and `qrels/SPLIT.tsv`; TREC's qrels have four columns.
"""

import json
import os
from collections.abc import Mapping

from realm_jax.data.questions import Question
from realm_jax.foundations import object_store

# Query id to document name to grade; grades above 0 are relevant.
Judgements = Mapping[str, Mapping[str, int]]


def read_judgements(path: str | os.PathLike) -> Judgements:
  """Reads BEIR's table (a header, then query, document and grade) or TREC's qrels.

  Raises:
    FileNotFoundError: If the file is missing.
    ValueError: If a line is not a judgement or contradicts another, or there are none.
  """
  judgements: dict[str, dict[str, int]] = {}
  for number, line in enumerate(_lines(path), 1):
    columns = line.split()
    if not columns or (number == 1 and columns[-1] == "score"):
      continue
    try:
      query, *iteration, document, written = columns
      if len(iteration) > 1:
        raise ValueError(f"{len(columns)} columns")
      grade = int(written)
    except ValueError as error:
      raise ValueError(
        f"{os.fspath(path)}, line {number} is not a judgement ({error}); write query, document and "
        "grade (BEIR), or query, 0, document and grade (TREC)"
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
  queries = []
  for number, line in enumerate(_lines(path), 1):
    if not line.strip():
      continue
    try:
      record = json.loads(line)
      query = Question(id=str(record["_id"]), text=str(record["text"]), answers=())
    except (ValueError, KeyError, TypeError) as error:
      raise ValueError(
        f"{os.fspath(path)}, line {number} is not a query: {line[:80]}; write JSON with `_id` and "
        "`text`"
      ) from error
    if query.id in judgements:
      queries.append(query)
  missing = judgements.keys() - {query.id for query in queries}
  if missing:
    raise ValueError(
      f"{os.fspath(path)} lacks {len(missing)} of the {len(judgements)} judged queries, such as "
      f"{min(missing)!r}; give the queries of the same collection"
    )
  return queries


def _lines(path: str | os.PathLike) -> list[str]:
  return object_store.absolute(path).read_text().splitlines()
