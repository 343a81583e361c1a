import itertools

import pytest

from realm_jax.demo import wording
from realm_jax.demo.real_facts import TABLES
from realm_jax.demo.relations import KINDS, RELATIONS

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
  question = wording.ask(relation, article="the", subject="Nulvaclov")
  assert question.count("the Nulvaclov") == 1
  assert question[0].isupper() and question.endswith("?")


def content_words(template):
  return {w.strip(".,").casefold() for w in template.split() if "{" not in w} - COMMON_WORDS
