import itertools

import pytest

from realm_jax.demo.tables import KINDS, RELATIONS, TABLES
from realm_jax.demo.world import Fact

ALL_RELATIONS = {f"invented {kind}": relations for kind, relations in KINDS.items()} | {
  f"real {category}": table.relations for category, table in TABLES.items()
}
COMMON_WORDS = set("a an the of in on at to by is was as and for has from with it that".split())


@pytest.mark.parametrize("category", ALL_RELATIONS)
def test_templates_are_distinct_and_worded_differently_in_training(category):
  templates = [t for r in ALL_RELATIONS[category] for t in r.documents + r.training]
  assert len(set(templates)) == len(templates)
  for relation in ALL_RELATIONS[category]:
    for document, training in itertools.product(relation.documents, relation.training):
      shared = content_words(document) & content_words(training) - {category.split()[1]}
      assert len(shared) <= 1, (document, training)


@pytest.mark.parametrize("category", ALL_RELATIONS)
def test_templates_are_well_formed(category):
  for relation in ALL_RELATIONS[category]:
    for template in relation.documents + relation.training:
      assert template.count("{subject}") == template.count("{value}") == 1
      assert template.count("{a}") == template.count("{a} {value}")
      assert template.endswith(".") and template.count(".") == 1


@pytest.mark.parametrize("relation", RELATIONS.values(), ids=RELATIONS)
def test_every_relation_can_be_asked_for(relation):
  question = Fact(
    category="town",
    subject="Nulvaclov",
    article="the",
    relation=relation,
    value="x",
    kind="invented",
    document_variant=0,
    training_variant=0,
  ).question
  assert question.count("the Nulvaclov") == 1
  assert question[0].isupper() and question.endswith("?")


def content_words(template):
  return {w.strip(".,").casefold() for w in template.split() if "{" not in w} - COMMON_WORDS


@pytest.mark.parametrize("category", TABLES)
def test_cells_are_clean(category):
  columns = list(TABLES[category].rows[0])
  assert set(columns[1:]) - {"article"} == {r.name for r in TABLES[category].relations}
  for row in TABLES[category].rows:
    assert list(row) == columns  # no cell beyond the header's
    assert next(iter(row.values()))
    assert any(row[relation.name] for relation in TABLES[category].relations)
    for cell in row.values():
      assert cell == cell.strip()
      assert "  " not in cell
      assert ". " not in cell
