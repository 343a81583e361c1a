import pytest

from realm_jax.jobs.preparation.prepare_examples import prepare_examples
from realm_jax.training.recipes.examples import ReadingOrder
from tests.data import conftest


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  directory = tmp_path_factory.mktemp("corpus") / "corpus"
  return conftest.write(directory, conftest.DOCUMENTS).directory


@pytest.mark.parametrize(("wanted", "written"), [(None, 6), (2, 2), (99, 6)])
def test_examples_in_order_are_those_wanted(corpus, tmp_path, wanted, written):
  manifest = prepare_examples(
    task="masked_queries",
    corpus=corpus,
    output=str(tmp_path / "examples"),
    reading=ReadingOrder(order="corpus", num_examples=wanted),
  )
  assert sum(manifest.num_examples) == written
