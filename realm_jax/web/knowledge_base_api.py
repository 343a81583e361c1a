"""The HTTP API of a knowledge base: what was found, and its documents, as JSON."""

import dataclasses
import json
from collections.abc import Callable
from typing import Annotated, Any

import fastapi
import pydantic
from fastapi import Depends, Query

from realm_jax.corpus.documents import Document
from realm_jax.knowledge_base import fields
from realm_jax.knowledge_base.hits import Answer
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.web.editors import Editors
from realm_jax.web.queries import Text
from realm_jax.web.refusals import NotFoundError
from realm_jax.web.turns import Turns

MAX_FOUND = 100
Count = Annotated[int, Query(ge=1, le=MAX_FOUND)]
First = Annotated[int, Query(ge=0, lt=2**31)]


class Records(pydantic.BaseModel):
  """Documents with `id`, `text` or `title`, and fields of any name.

  `replace` puts them in place of those with their ids; otherwise such are refused.
  """

  model_config = pydantic.ConfigDict(extra="forbid")

  documents: Annotated[list[dict[str, Any]], pydantic.Field(min_length=1)]
  replace: bool = False

  @pydantic.field_validator("documents")
  @classmethod
  def _has_no_nan(cls, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    try:
      json.dumps(documents, allow_nan=False)  # which Python's parser accepts, and JSON does not
    except RecursionError as error:
      raise ValueError("documents are nested too deep") from error
    return documents


class Feedback(pydantic.BaseModel):
  """What passages were useful for a question: ids of documents, or these with the passage's place.

  `answer` is found in passages.
  """

  model_config = pydantic.ConfigDict(extra="forbid")

  question: Annotated[Text, pydantic.StringConstraints(min_length=1)]
  answer: list[Text] | Text = ""
  useful: list[tuple[Text, int] | Text] = []
  not_useful: list[tuple[Text, int] | Text] = []


def record(document: Document) -> dict[str, Any]:
  """Returns a document as it is added."""
  own = {"id": document.id, "title": document.title, "text": document.text}
  return {**document.fields, **own}


def document_of(base: KnowledgeBase, id: str) -> Document:
  """Returns a document.

  Raises:
    NotFoundError: If there is none.
  """
  found = base.document(id)
  if found is None:
    raise NotFoundError(f"there is no document {id!r:.60}")
  return found


def routes(
  base: KnowledgeBase, editors: Editors, turns: Turns, *, answer: Callable[..., Answer]
) -> fastapi.APIRouter:
  """Returns the routes under `/api`; those that read answers take turns."""
  router = fastapi.APIRouter(prefix="/api")
  editing = [Depends(editors.check)]

  @router.get("/search", summary="The best passages; `where` has conditions on fields, as JSON")
  def search(
    q: Text, k: Count = 5, where: Text = "{}", min_answerable: float | None = None
  ) -> dict:
    hits = base.search(q, k=k, where=fields.conditions(where), min_answerable=min_answerable)
    found = [dataclasses.asdict(hit) for hit in hits]
    return {"question": q, "hits": found, "answerable": hits.answerable}

  @router.get("/answer", summary="An answer from passages, if there is a reader or a generator")
  def answered(q: Text, where: Text = "{}") -> dict:
    with turns.exclusive():
      found = answer(q, where=fields.conditions(where))
    own = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    return {**own, "hits": [dataclasses.asdict(hit) for hit in found.hits]}

  @router.get("/documents", summary="Documents without their texts, a page at a time")
  def documents(first: First = 0, count: Count = 50) -> dict:
    found = map(record, base.documents(first=first, count=count))
    listed = [{name: each[name] for name in each if name != "text"} for each in found]
    return {"num_documents": len(base), "documents": listed}

  @router.get("/document", summary="A document")
  def document(id: Text) -> dict:
    return record(document_of(base, id))

  @router.get("/history", summary="What was changed, newest first")
  def history() -> list[dict]:
    return [dataclasses.asdict(change) for change in base.history]

  @router.post("/documents", summary="Adds or replaces documents", dependencies=editing)
  def put(records: Records) -> dict:
    change = base.update if records.replace else base.add
    return dataclasses.asdict(change(records.documents))

  @router.delete("/document", summary="Deletes a document", status_code=204, dependencies=editing)
  def delete(id: Text) -> None:
    base.delete(document_of(base, id).id)

  @router.get("/feedback", summary="Past questions, newest first", dependencies=editing)
  def past_questions(first: First = 0, count: Count = 50) -> list[dict]:
    return [past.summary for past in base.past_questions(first=first, count=count)]

  @router.post("/feedback", summary="Remembers what was useful", dependencies=editing)
  def feedback(said: Feedback) -> dict:
    return base.feedback(**said.model_dump()).summary

  @router.delete(
    "/feedback", summary="Forgets a past question", status_code=204, dependencies=editing
  )
  def forget(question: Text) -> None:
    base.forget(question)

  return router
