import collections
import dataclasses
import re

import pytest

from realm_jax.almanac import world
from realm_jax.almanac.real_facts import TABLES
from realm_jax.almanac.relations import KINDS


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


def test_subject_and_relation_determine_the_value(default_world):
  keys = {(fact.subject.casefold(), fact.relation) for fact in default_world.facts}
  assert len(keys) == len(default_world.facts)
  assert len({fact.fact_id for fact in default_world.facts}) == len(default_world.facts)
  for facts in default_world.by_subject.values():
    assert len({fact.category for fact in facts}) == 1


def test_invented_names_differ(default_world):
  invented = [fact for fact in default_world.facts if fact.kind == "invented"]
  subjects = {fact.subject for fact in invented}
  people = {fact.value for fact in invented if value_type(fact) == "person"}
  cities = {fact.value for fact in invented if value_type(fact) == "city"}
  assert len(subjects) == 6_500
  assert len(people) > 400  # the invented and the real ones
  assert len(cities) > 150
  assert not subjects & people and not subjects & cities and not people & cities


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


@pytest.mark.parametrize("sentence_of", [world.document_sentence, world.training_sentence])
def test_sentences_are_short_and_well_formed(default_world, sentence_of):
  for fact in default_world.facts:
    text = sentence_of(fact).text
    length = len(text.split())
    assert length <= 14, text
    if sentence_of is world.document_sentence:
      assert 6 <= length <= 13, text
    assert text[0].isupper() or text[0].isdigit(), text
    assert text.endswith(".") and text.count(". ") == 0, text
    assert not re.search(r"[{}]|  |\ban [^aeiou]|\b[Aa] [aeiou]|\bthe the\b", text), text


def test_held_out_shares(small_world):
  real = [fact for fact in small_world.facts if fact.kind == "real"]
  invented = [fact for fact in small_world.facts if fact.kind == "invented"]
  assert sum(fact.held_out for fact in real) == round(len(real) / 2)
  assert sum(fact.held_out for fact in invented) == round(len(invented) * 0.2)


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


def test_edit_is_balanced_and_plausible(small_world):
  edited = world.edit(small_world, seed=0, num_edits=40)
  sorts = collections.Counter((edit.fact.kind, edit.fact.held_out) for edit in edited.edits)
  assert set(sorts.values()) == {10} and len(sorts) == 4
  for edit in edited.edits:
    peers = {
      fact.value
      for fact in small_world.facts
      if (fact.category, fact.relation) == (edit.fact.category, edit.fact.relation)
    }
    assert edit.fact.value in peers
    for sentence in (world.document_sentence(edit.fact), world.training_sentence(edit.fact)):
      assert sentence.text.count(edit.fact.value) == sentence.text.count(edit.fact.subject) == 1


@pytest.mark.parametrize(
  ("num_edits", "message"),
  [
    (-1, "num_edits is -1; give 0 or more"),
    (10_000, "num_edits=10000 needs 2500 facts that are real, held out; the world can change"),
  ],
)
def test_impossible_edits_are_refused(small_world, num_edits, message):
  with pytest.raises(ValueError, match=message):
    world.edit(small_world, seed=0, num_edits=num_edits)


def value_type(fact):
  return next(r.value_type for r in KINDS[fact.category] if r.name == fact.relation)
