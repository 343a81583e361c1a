"""LangChain's standard tests of a retriever, and what they leave out."""

import copy
import pickle

import pytest

suites = pytest.importorskip("langchain_tests.integration_tests")
langchain_retriever = pytest.importorskip("examples.langchain_retriever")
pytestmark = pytest.mark.interop


class TestStandard(suites.RetrieversIntegrationTests):
  @pytest.fixture(autouse=True)
  def _base(self, base):
    self.base = base

  @property
  def retriever_constructor(self):
    return langchain_retriever.KnowledgeBaseRetriever

  @property
  def retriever_constructor_params(self):
    return {"base": self.base}

  @property
  def retriever_query_example(self):
    return "which wing flutters"


@pytest.fixture
def retriever(base):
  return langchain_retriever.KnowledgeBaseRetriever(base=base, k=2, where={"n": {"gte": 6}})


def found(documents):
  return [document.id for document in documents]


def test_a_call_may_have_another_k_and_other_conditions(retriever):
  assert found(retriever.invoke("wing")) == ["n6#0", "n7#0"]
  assert found(retriever.invoke("wing", k=1)) == ["n6#0"]
  assert found(retriever.invoke("wing", k=3, where={})) == ["n0#0", "n1#0", "n2#0"]
  assert found(retriever.invoke("wing", where={"n": 3})) == ["n3#0"]
  with pytest.raises(ValueError, match="k=0"):
    retriever.invoke("wing", k=0)


async def test_asynchronous_calls_find_the_same(retriever):
  assert found(await retriever.ainvoke("wing")) == ["n6#0", "n7#0"]
  assert found(await retriever.ainvoke("wing", k=1, where={"n": 4})) == ["n4#0"]
  both = await retriever.abatch(["wing", "note"])
  assert [*map(found, both)] == [["n6#0", "n7#0"]] * 2


def test_fields_of_a_document_are_its_own(retriever):
  (document,) = retriever.invoke("rudder", where={})
  assert document.metadata["source"] == "https://example.org/a" and document.metadata["score"] == 7
  (document,) = retriever.invoke("wing", k=1)
  assert document.metadata["source"] == "n6" and document.metadata["n"] == 6
  assert document.metadata["title"] == "Wings" and 0 < document.metadata["score"] < 7


def test_what_was_useful_is_found_first_for_queries_like_it(retriever, base):
  first, second = retriever.invoke("which wing flutters")
  assert found([first, second]) == ["n6#0", "n7#0"]
  retriever.feedback("which wing flutters", useful=[second], not_useful=[first])
  assert found(retriever.invoke("which wing flutters")) == ["n7#0", "n6#0"]
  assert found(retriever.invoke("note")) == ["n6#0", "n7#0"]
  base.forget("which wing flutters")
  assert found(retriever.invoke("which wing flutters")) == ["n6#0", "n7#0"]
  retriever.feedback("which wing flutters", answer="Note 7")
  assert found(retriever.invoke("which wing flutters")) == ["n7#0", "n6#0"]


def test_copies_find_the_same(retriever):
  copies = retriever.model_copy(deep=True), copy.deepcopy(retriever)
  for other in (*copies, pickle.loads(pickle.dumps(retriever))):
    assert found(other.invoke("wing")) == ["n6#0", "n7#0"]
