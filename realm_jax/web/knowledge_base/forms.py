"""What the pages of a knowledge base send: searches, changes, and what was useful."""

import csv
import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import pydantic
from fastapi import UploadFile

from realm_jax.corpus.documents import Document, Record
from realm_jax.corpus.input_files import InputFile, format_of, unreadable
from realm_jax.corpus.reading import read_records
from realm_jax.knowledge_base.knowledge_base import Changes, KnowledgeBase
from realm_jax.knowledge_base.store import columns
from realm_jax.knowledge_base.store.query import Query
from realm_jax.web.application import MAX_TEXT, Id, NotFoundError, Text
from realm_jax.web.knowledge_base import asking


def document_of(base: KnowledgeBase, id: str) -> Document:
  """Returns a document."""
  found = base.document(id)
  if found is None:
    raise NotFoundError(f"there is no document {id!r:.60}")
  return found


def record(document: Document) -> dict[str, Any]:
  """Returns a document as it is added."""
  own = {"id": document.id, "title": document.title, "text": document.text}
  return {**document.fields, **own}


def state(document: Document) -> str:
  """Returns what tells a document from itself once it is changed."""
  return hashlib.sha256(json.dumps(record(document), sort_keys=True).encode()).hexdigest()


class Search(pydantic.BaseModel):
  """A question, with conditions, as typed on the page; what is left empty is none.

  More fields are those of `Query` by their names.
  """

  model_config = pydantic.ConfigDict(extra="allow")

  q: Id = ""
  field: Id = ""
  equal: Id = ""
  least: Id = ""
  most: Id = ""
  min_answerable: Id = ""
  per_document: Id = ""
  distinct: Id = ""
  newer: Id = ""
  around: Id = ""
  after: Id = ""
  explain: Id = ""

  def query(self, examples: Mapping[str, Any], **defaults: str) -> Query:
    """Returns what is asked, given a value of each field of documents.

    Raises:
      ValueError: If something is too long, or no number where one is needed.
    """
    for name, typed in self:
      _check_length(name, str(typed))
    asked = asking.query({**defaults, **dict(self)})
    where = {**(asked.where or {}), **self._where(examples)}
    return dataclasses.replace(asked, where=where or None)

  def _where(self, examples: Mapping[str, Any]) -> dict[str, Any]:
    if not self.field:
      return {}
    if self.equal:
      # Commas divide, but not in quotes, and a value may have one.
      (words,) = csv.reader([" ".join(self.equal.split())], skipinitialspace=True)
      words = dict.fromkeys(filter(None, [self.equal, *map(str.strip, words)]))
      return {self.field: [value for word in words for value in (word, _value(word))]}
    example = examples.get(self.field)
    is_text = all(
      isinstance(one, str) for one in (example if isinstance(example, list) else [example])
    )
    bounds = {"gte": self.least, "lte": self.most}
    found = {side: text if is_text else _value(text) for side, text in bounds.items() if text}
    return {self.field: found} if found else {}


class ChangedError(ValueError):
  """A document is no longer the one that a page had shown."""


class EditForm(pydantic.BaseModel):
  """A change of a document as sent by the page's forms; `fields` is JSON.

  `state` is that of the document which the page had shown. What is typed is checked when it is
  applied, so that the page can show it again.
  """

  action: Literal["add", "update", "delete"]
  id: Id = ""
  title: Id = ""
  text: Id = ""
  fields: Id = ""
  state: Id = ""

  def apply(self, base: KnowledgeBase) -> None:
    """Changes a document.

    Raises:
      ChangedError: If the document is no longer the one that the page had shown.
      ValueError: If what was typed makes no document.
    """
    if not self.id:
      raise ValueError("a document needs an id, by which it is changed and deleted")
    there = self._shown(base)
    _check_length("title", self.title)
    if self.action == "delete":
      document_of(base, self.id)
      base.delete(own["id"] for own in self._unchanged({"id": self.id}, base))
      return
    if not self.text.strip() and (not self.title.strip() or (there and there.text)):
      raise ValueError(f"document {self.id!r:.60} needs text; to be rid of it, delete it")
    more = columns.conditions(self.fields or "{}")
    text = self.text.replace("\r\n", "\n")  # as browsers send lines
    put = base.add if self.action == "add" else base.update
    put(self._unchanged({**more, "id": self.id, "title": self.title, "text": text}, base))

  def _shown(self, base: KnowledgeBase) -> Document | None:
    there = base.document(self.id)
    if self.state and self.state != (state(there) if there else ""):
      raise ChangedError(
        f"document {self.id!r:.60} was changed or deleted since this form was opened; compare, and "
        "send it again to have what is typed here"
      )
    return there

  def _unchanged(self, own: dict[str, Any], base: KnowledgeBase) -> Iterator[dict[str, Any]]:
    """Yields a record, which a change asks for once nobody else writes."""
    self._shown(base)
    yield own


def upload(base: KnowledgeBase, files: Sequence[UploadFile], *, replace: bool) -> Changes:
  """Adds the documents of files that a browser has sent, each known by the name of its file.

  Raises:
    ValueError: If the format of one is unknown, or a document is refused. Nothing is added.
  """
  named = [(os.path.basename((file.filename or "").replace("\\", "/")), file) for file in files]
  named = [(name, file) for name, file in named if name]  # a form without files has one without
  if not named:
    raise ValueError("no file was chosen")
  if unknown := [name for name, _ in named if format_of(name) is None]:
    raise ValueError(f"{unknown[0]!r:.60} is of unknown format; nothing was added")

  def records() -> Iterator[Record]:
    for name, file in named:
      as_input = InputFile(path=name, name=name, format=format_of(name) or "text")
      try:
        yield from read_records(file.file, file=as_input)
      except (OSError, ValueError) as error:
        yield unreadable(name, error)

  return (base.update if replace else base.add)(records())


class FeedbackForm(pydantic.BaseModel):
  """A button of a passage found for `q`; `back` is the page that has it."""

  q: Annotated[Text, pydantic.StringConstraints(min_length=1)]
  verdict: Literal["useful", "not_useful", "take_back", "forget"]
  id: Id = ""
  passage: int = 0
  back: Annotated[Id, pydantic.StringConstraints(pattern=r"^/(questions)?(\?.*)?$")] = "/"

  def apply(self, base: KnowledgeBase) -> None:
    """Remembers what was said, or forgets it."""
    passage = (self.id, self.passage)
    if self.verdict == "forget":
      base.forget(self.q)
    elif self.verdict == "take_back":
      base.take_back(self.q, passage)
    elif self.verdict == "useful":
      base.feedback(self.q, useful=passage)
    else:
      base.feedback(self.q, not_useful=passage)


def _check_length(name: str, typed: str) -> None:
  if len(typed) > MAX_TEXT:
    raise ValueError(f"{name} has {len(typed):,} characters; use at most {MAX_TEXT:,}")


def _value(text: str) -> Any:
  """Returns the number, boolean or text that is meant."""
  try:
    found = json.loads(text)
  except (ValueError, RecursionError):
    return text
  is_meant = isinstance(found, int) or (isinstance(found, float) and math.isfinite(found))
  return found if is_meant else text
