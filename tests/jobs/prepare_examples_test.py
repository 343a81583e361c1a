import pytest

from realm_jax.jobs.preparation.prepare_examples import (
  ExampleSettings,
  ReadingOrder,
  prepare_examples,
)
from tests.pairs import conftest


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


@pytest.mark.parametrize(
  ("task", "given", "unused"),
  [
    ("questions", {"max_masks": 3, "removal_rate": 0.5}, "removal_rate, --max_masks"),
    ("masked_queries", {"max_masks": 3, "passage_length": 64}, "passage_length"),
    ("inverse_cloze", {"removal_rate": 0.5, "mask": "random_span"}, "mask"),
  ],
)
def test_settings_of_another_task_are_refused(task, given, unused):
  with pytest.raises(ValueError, match=f"^--{unused} would do nothing with task='{task}'; omit it"):
    ExampleSettings(**given).data(task)
