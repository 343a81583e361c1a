"""A knowledge base as a retriever of LangChain (`pip install langchain-core`)."""

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

import realm_jax


class KnowledgeBaseRetriever(BaseRetriever):
  """Finds passages: `KnowledgeBaseRetriever(base=base).invoke("which alloy was used?")`."""

  model_config = {"arbitrary_types_allowed": True}
  base: realm_jax.KnowledgeBase
  k: int = 5
  where: dict | None = None

  def _get_relevant_documents(self, query: str, *, run_manager) -> list[Document]:
    hits = self.base.search(query, k=self.k, where=self.where)
    return [
      Document(
        id=f"{hit.id}#{hit.passage}",
        page_content=hit.text,
        metadata={**hit.fields, "source": hit.id, "title": hit.title, "score": hit.score},
      )
      for hit in hits
    ]
