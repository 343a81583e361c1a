"""A knowledge base as a retriever of LangChain, with its standard tests, and of LlamaIndex."""

import copy
import pickle

import pytest

suites = pytest.importorskip("langchain_tests.integration_tests")
langchain = pytest.importorskip("examples.langchain_retriever")
core = pytest.importorskip("llama_index.core")
llamaindex = pytest.importorskip("examples.llamaindex_retriever")
pytestmark = pytest.mark.interop
LATER = {"n": {"gte": 6}}


class TestStandard(suites.RetrieversIntegrationTests):
  @pytest.fixture(autouse=True)
  def _base(self, base):
    self.base = base

  @property
  def retriever_constructor(self):
    return langchain.KnowledgeBaseRetriever

  @property
  def retriever_constructor_params(self):
    return {"base": self.base}

  @property
  def retriever_query_example(self):
    return "which wing flutters"


@pytest.fixture
def retriever(base):
  return langchain.KnowledgeBaseRetriever(base=base, k=2, where=LATER)


@pytest.fixture
def of_nodes(base):
  return llamaindex.KnowledgeBaseRetriever(base, k=2, where=LATER)


@pytest.fixture(params=["retriever", "of_nodes"])
def either(request):
  return request.getfixturevalue(request.param)


def asked(either, query):
  return either.invoke(query) if hasattr(either, "invoke") else either.retrieve(query)


def found(results):
  return [getattr(one, "id", None) or one.node.node_id for one in results]


def test_a_call_may_have_another_k_and_other_conditions(retriever):
  assert found(retriever.invoke("wing")) == ["n6#0", "n7#0"]
  assert found(retriever.invoke("wing", k=1)) == ["n6#0"]
  assert found(retriever.invoke("wing", k=3, where={})) == ["n0#0", "n1#0", "n2#0"]
  assert found(retriever.invoke("wing", where={"n": 3})) == ["n3#0"]
  with pytest.raises(ValueError, match="k=0"):
    retriever.invoke("wing", k=0)


async def test_asynchronous_calls_find_the_same(retriever, of_nodes):
  assert found(await of_nodes.aretrieve("wing")) == ["n6#0", "n7#0"]
  assert found(await retriever.ainvoke("wing")) == ["n6#0", "n7#0"]
  assert found(await retriever.ainvoke("wing", k=1, where={"n": 4})) == ["n4#0"]
  both = await retriever.abatch(["wing", "note"])
  assert [*map(found, both)] == [["n6#0", "n7#0"]] * 2


def test_a_node_has_what_the_library_asks_for(of_nodes):
  assert isinstance(of_nodes, core.base.base_retriever.BaseRetriever)
  nodes = of_nodes.retrieve("wing")
  assert found(nodes) == ["n6#0", "n7#0"] and all(node.score > 0 for node in nodes)
  assert nodes[0].text == "A wing flutters. Note 6." and nodes[0].node.ref_doc_id == "n6"
  assert found(of_nodes.retrieve(core.QueryBundle("wing"))) == found(nodes)


def test_fields_of_a_document_are_its_own(retriever, of_nodes, base):
  (of_langchain,) = retriever.invoke("rudder", where={})
  (of_llamaindex,) = llamaindex.KnowledgeBaseRetriever(base).retrieve("rudder")
  for one in (of_langchain, of_llamaindex):
    assert one.metadata["source"] == "https://example.org/a" and one.metadata["score"] == 7
  (document,), node = retriever.invoke("wing", k=1), of_nodes.retrieve("wing")[0]
  assert 0 < document.metadata.pop("score") < 7
  assert document.metadata == node.metadata == {"source": "n6", "title": "Wings", "n": 6}


def test_a_query_engine_answers_from_what_it_finds(of_nodes):
  engine = core.query_engine.RetrieverQueryEngine.from_args(of_nodes, llm=core.llms.MockLLM())
  response = engine.query("wing")
  assert found(response.source_nodes) == ["n6#0", "n7#0"] and "Note 6" in str(response)


def test_what_was_useful_is_found_first_for_queries_like_it(either, base):
  first, second = asked(either, "which wing flutters")
  assert found([first, second]) == ["n6#0", "n7#0"]
  either.feedback("which wing flutters", useful=[second], not_useful=[first])
  assert found(asked(either, "which wing flutters")) == ["n7#0", "n6#0"]
  assert found(asked(either, "note")) == ["n6#0", "n7#0"]
  base.forget("which wing flutters")
  assert found(asked(either, "which wing flutters")) == ["n6#0", "n7#0"]
  either.feedback("which wing flutters", answer="Note 7")
  assert found(asked(either, "which wing flutters")) == ["n7#0", "n6#0"]


def test_copies_find_the_same(either):
  for other in (copy.deepcopy(either), copy.copy(either), pickle.loads(pickle.dumps(either))):
    assert found(asked(other, "wing")) == ["n6#0", "n7#0"]
