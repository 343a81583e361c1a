"""A knowledge base as a retriever of LlamaIndex (`pip install llama-index-core`)."""

import asyncio
from collections.abc import Sequence

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import (
  NodeRelationship,
  NodeWithScore,
  QueryBundle,
  RelatedNodeInfo,
  TextNode,
)

import realm_jax


class KnowledgeBaseRetriever(BaseRetriever):
  """Finds passages: `KnowledgeBaseRetriever(base).retrieve("which alloy was used?")`.

  The metadata of a passage are the fields of its document, and its id (`source`), title, page and
  heading unless the document has fields of these names. What was useful is told by `feedback`.
  """

  def __init__(self, base: realm_jax.KnowledgeBase, *, k: int = 5, where: dict | None = None):
    self._base, self._k, self._where = base, k, where
    super().__init__()

  def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
    hits = self._base.search(query_bundle.query_str, k=self._k, where=self._where)
    return [
      NodeWithScore(
        node=TextNode(
          id_=f"{hit.id}#{hit.passage}",
          text=hit.text,
          metadata={"source": hit.id, "title": hit.title}
          | {name: value for name in ("page", "heading") if (value := getattr(hit, name))}
          | {**hit.fields},
          relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=hit.id)},
        ),
        score=hit.score,
      )
      for hit in hits
    ]

  def feedback(self, query: str, *, answer=(), useful=(), not_useful=()):
    """Remembers which nodes, one or several, were useful for a query, for queries like it."""
    useful, not_useful = map(_passages, (useful, not_useful))
    return self._base.feedback(query, answer=answer, useful=useful, not_useful=not_useful)

  async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
    return await asyncio.to_thread(self._retrieve, query_bundle)


def _passages(nodes: NodeWithScore | Sequence[NodeWithScore]) -> list[tuple[str, int]]:
  nodes = [nodes] if isinstance(nodes, NodeWithScore) else nodes
  parts = (found.node.node_id.rpartition("#") for found in nodes)
  return [(id, int(passage)) for id, _, passage in parts]
