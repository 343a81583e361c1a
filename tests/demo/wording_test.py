import pytest

from realm_jax.demo import wording
from realm_jax.demo.wording import Relation


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
  sentence = wording.fill(template, noun="moon", article=article, subject=subject, value=value)
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
  assert wording.is_clear(relation, noun="", article="", subject=subject, value=value) == clear
