"""A knowledge base as a retriever of LlamaIndex, alone and in its query engine."""

import copy
import pickle

import pytest

core = pytest.importorskip("llama_index.core")
llamaindex_retriever = pytest.importorskip("examples.llamaindex_retriever")
pytestmark = pytest.mark.interop


@pytest.fixture
def retriever(base):
  return llamaindex_retriever.KnowledgeBaseRetriever(base, k=2, where={"n": {"gte": 6}})


def found(nodes):
  return [node.node.node_id for node in nodes]


def test_a_retriever_is_one_of_the_library(retriever):
  assert isinstance(retriever, core.base.base_retriever.BaseRetriever)
  nodes = retriever.retrieve("wing")
  assert found(nodes) == ["n6#0", "n7#0"] and all(node.score > 0 for node in nodes)
  assert nodes[0].text == "A wing flutters. Note 6." and nodes[0].node.ref_doc_id == "n6"
  assert nodes[0].metadata == {"source": "n6", "title": "Wings", "n": 6}
  assert found(retriever.retrieve(core.QueryBundle("wing"))) == found(nodes)


async def test_asynchronous_calls_find_the_same(retriever):
  assert found(await retriever.aretrieve("wing")) == ["n6#0", "n7#0"]


def test_fields_of_a_document_are_its_own(base):
  (node,) = llamaindex_retriever.KnowledgeBaseRetriever(base).retrieve("rudder")
  assert node.metadata["source"] == "https://example.org/a" and node.metadata["score"] == 7


def test_a_query_engine_answers_from_what_it_finds(retriever):
  engine = core.query_engine.RetrieverQueryEngine.from_args(retriever, llm=core.llms.MockLLM())
  response = engine.query("wing")
  assert found(response.source_nodes) == ["n6#0", "n7#0"] and "Note 6" in str(response)


def test_what_was_useful_is_found_first_for_queries_like_it(retriever, base):
  first, second = retriever.retrieve("which wing flutters")
  assert found([first, second]) == ["n6#0", "n7#0"]
  retriever.feedback("which wing flutters", useful=[second], not_useful=[first])
  assert found(retriever.retrieve("which wing flutters")) == ["n7#0", "n6#0"]
  assert found(retriever.retrieve("note")) == ["n6#0", "n7#0"]
  base.forget("which wing flutters")
  assert found(retriever.retrieve("which wing flutters")) == ["n6#0", "n7#0"]
  retriever.feedback("which wing flutters", answer="Note 7")
  assert found(retriever.retrieve("which wing flutters")) == ["n7#0", "n6#0"]


def test_copies_find_the_same(retriever):
  for other in (copy.deepcopy(retriever), pickle.loads(pickle.dumps(retriever))):
    assert found(other.retrieve("wing")) == ["n6#0", "n7#0"]
