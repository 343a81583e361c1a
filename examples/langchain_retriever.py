"""A knowledge base as a retriever of LangChain (`pip install langchain-core`)."""

import asyncio

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

import realm_jax


class KnowledgeBaseRetriever(BaseRetriever):
  """Finds passages: `KnowledgeBaseRetriever(base=base).invoke("which alloy was used?", k=3)`.

  The metadata of a passage are the fields of its document, and its id (`source`), title, page,
  heading and score unless the document has fields of these names. What was useful is told by
  `feedback`.
  """

  model_config = {"arbitrary_types_allowed": True}
  base: realm_jax.KnowledgeBase
  k: int = 5
  where: dict | None = None

  def _get_relevant_documents(self, query: str, *, run_manager, k=None, where=None):
    k, where = self.k if k is None else k, self.where if where is None else where
    return [
      Document(
        id=f"{hit.id}#{hit.passage}",
        page_content=hit.text,
        metadata={
          "source": hit.id,
          "title": hit.title,
          **({"page": hit.page} if hit.page else {}),
          **({"heading": hit.heading} if hit.heading else {}),
          "score": hit.score,
          **hit.fields,
        },
      )
      for hit in self.base.search(query, k=k, where=where)
    ]

  def feedback(self, query: str, *, answer=(), useful=(), not_useful=()):
    """Remembers which documents, one or several, were useful for a query, for queries like it."""
    useful, not_useful = map(_passages, (useful, not_useful))
    return self.base.feedback(query, answer=answer, useful=useful, not_useful=not_useful)

  async def _aget_relevant_documents(self, query: str, *, run_manager, **settings):
    found = self._get_relevant_documents
    return await asyncio.to_thread(found, query, run_manager=run_manager.get_sync(), **settings)


def _passages(documents) -> list[tuple[str, int]]:
  documents = [documents] if isinstance(documents, Document) else documents
  parts = (document.id.rpartition("#") for document in documents)
  return [(id, int(passage)) for id, _, passage in parts]
