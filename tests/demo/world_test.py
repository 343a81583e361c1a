import collections
import dataclasses
import re

import pytest

from realm_jax.demo import world
from realm_jax.demo.tables import RELATIONS, TABLES, Relation


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
    assert len({fact.relation.name for fact in facts}) == len(facts)


@pytest.mark.parametrize("sentence_of", ["document_sentence", "training_sentence"])
def test_sentences_name_the_subject_once_and_the_value_once(default_world, sentence_of):
  for fact in default_world.facts:
    sentence = getattr(fact, sentence_of)
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
  assert fact.training_sentence.text == "The pound is the currency of the United Kingdom."


def test_no_training_sentence_mentions_a_held_out_fact(default_world):
  training = [fact for fact in default_world.facts if not fact.held_out]
  sentences_with = collections.defaultdict(set)
  texts = []
  for index, fact in enumerate(training):
    # "South Sudan" is no mention of Sudan.
    text = fact.training_sentence.text.replace(fact.subject, "_")
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


def test_edit_changes_only_values(small_world):
  edited = world.edit(small_world, seed=0, num_edits=40)
  changed = 0
  for before, after in zip(small_world.facts, edited.facts, strict=True):
    assert dataclasses.replace(after, value=before.value) == before
    changed += after.value != before.value
  assert changed == 40


def fact(subject, value, *, article="", relation=RELATIONS["capital"]):
  return world.Fact(
    category="moon",
    subject=subject,
    article=article,
    relation=relation,
    value=value,
    kind="real",
    document_variant=0,
    training_variant=0,
  )


@pytest.mark.parametrize(
  ("template", "article", "subject", "value", "text"),
  [
    (
      "The {value} is the currency of {subject}.",
      "the",
      "United Kingdom",
      "pound",
      "The pound is the currency of the United Kingdom.",
    ),
    ("{subject} has {value}.", "the", "Netherlands", "tulips", "The Netherlands has tulips."),
    ("{a} {value} grows in {subject}.", "", "Orlin", "elm", "An elm grows in Orlin."),
    ("Everyone in {subject} has {a} {value}.", "", "Orlin", "yew", "Everyone in Orlin has a yew."),
    ("The {noun} {subject} is {value}.", "", "Brontë", "Dvořák", "The moon Brontë is Dvořák."),
    ("{value} rules {subject}.", "", "Orlin", "Zelquin", "Zelquin rules Orlin."),
  ],
)
def test_fill_states_the_fact_and_spans_the_value_in_bytes(template, article, subject, value, text):
  sentence = fact(subject, value, article=article).stated(template)
  assert sentence.text == text
  assert text.encode()[sentence.start : sentence.limit].decode() == value


@pytest.mark.parametrize(
  ("subject", "value", "clear"),
  [
    ("Spain", "Madrid", True),
    ("Mexico", "Mexico City", False),  # the subject is part of it
    ("Tunisia", "Tunis", False),  # part of the subject
    ("Sierra Leone", "leone", False),  # the same word in another case
    ("Spain", "In", False),  # a word of a template
    ("Spain", "city", False),
    ("helium", "He", True),
  ],
)
def test_is_clear(subject, value, clear):
  relation = Relation(
    name="capital",
    value_type="city",
    documents=("Kings lived in {value}, {subject}.", "Of {subject} the chief is {value}."),
    training=(
      "{value} leads {subject}.",
      "The city {value} leads {subject}.",
      "About {subject}, {value}.",
    ),
    question="Where is {subject}?",
  )
  assert fact(subject, value, relation=relation).is_clear == clear
