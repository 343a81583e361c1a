import collections
import dataclasses
import re

import pytest

from realm_jax.demo import world
from realm_jax.demo.real_facts import TABLES


@pytest.fixture(scope="module")
def default_world():
  return world.make_world(seed=0)


@pytest.fixture(scope="module")
def small_world():
  return world.make_world(seed=1, num_invented_entities=200, held_out_fraction=0.2)


def test_invented_subjects_have_as_many_facts_as_real_ones(default_world):
  facts_of = [facts for facts in default_world.by_subject.values() if facts[0].kind == "invented"]
  for facts in facts_of:
    table = TABLES.get(facts[0].category)
    assert len(facts) == (len(table.relations) if table else 2)
    assert len({fact.relation for fact in facts}) == len(facts)


@pytest.mark.parametrize("sentence_of", [world.document_sentence, world.training_sentence])
def test_sentences_name_the_subject_once_and_the_value_once(default_world, sentence_of):
  for fact in default_world.facts:
    sentence = sentence_of(fact)
    content = sentence.text.encode()
    assert content[sentence.start : sentence.limit].decode() == fact.value
    before, after = content[: sentence.start].decode(), content[sentence.limit :].decode()
    rest = f"{before}\n{after}"
    assert fact.value not in rest, sentence.text
    assert rest.count(fact.subject) == 1, sentence.text
    # Case tells "He" from "he" here, but not to a model that reads lower case.
    words = re.findall(r"\w+", rest.casefold())
    assert fact.value.casefold() not in words, sentence.text


@pytest.mark.parametrize("seed", range(4))
def test_the_seed_sentence_is_always_held_out(seed):
  facts = world.make_world(seed=seed, num_invented_entities=0).facts
  (fact,) = [fact for fact in facts if fact.fact_id == world.SEED_FACT_ID]
  assert fact.held_out
  assert world.training_sentence(fact).text == "The pound is the currency of the United Kingdom."


def test_no_training_sentence_mentions_a_held_out_fact(default_world):
  training = [fact for fact in default_world.facts if not fact.held_out]
  sentences_with = collections.defaultdict(set)
  texts = []
  for index, fact in enumerate(training):
    # "South Sudan" is no mention of Sudan.
    text = world.training_sentence(fact).text.replace(fact.subject, "_")
    texts.append((text, fact.subject))
    for word in text.split():
      sentences_with[word.strip(".,")].add(index)
    sentences_with[fact.subject].add(index)
  held_out = [fact for fact in default_world.facts if fact.held_out]
  assert len(held_out) > 2_500
  for fact in held_out:
    first_word = fact.subject.split()[0]
    for index in sentences_with[fact.subject] | sentences_with[first_word]:
      text, subject = texts[index]
      if subject == fact.subject or fact.subject in text:
        assert not re.search(rf"\b{re.escape(fact.value)}\b", text), (fact, text)


def test_edit_changes_only_the_values_it_reports(small_world):
  edited = world.edit(small_world, seed=0, num_edits=40)
  assert len(edited.edits) == 40
  old_values = {edit.fact.fact_id: edit.old_value for edit in edited.edits}
  for before, after in zip(small_world.facts, edited.world.facts, strict=True):
    if before.fact_id in old_values:
      assert old_values[before.fact_id] == before.value != after.value
      assert dataclasses.replace(after, value=before.value) == before
    else:
      assert before == after
  assert {edit.fact for edit in edited.edits} <= set(edited.world.facts)
