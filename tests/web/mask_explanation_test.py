"""The mask filler's explanations hold once a passage is really removed or changed."""

import dataclasses

import pytest

from realm_jax.corpus.edits import Edits
from realm_jax.devices.datatypes import NULL_PASSAGE_ID

QUERY = "[MASK] is the money of Britain"


def test_the_answer_and_its_evidence(filler):
  (explanation,) = filler.explain([QUERY])
  assert explanation.answers[0].text == explanation.likeliest == "Pound"
  first = explanation.passages[0]
  assert (first.passage_id, first.title, first.spans) == (0, "Britain", ((0, 5),))
  assert [p.passage_id for p in explanation.passages] == [0, 3, NULL_PASSAGE_ID]
  assert sum(p.retrieval_probability for p in explanation.passages) == pytest.approx(1)
  products = [p.retrieval_probability * p.answer_probability for p in explanation.passages]
  assert explanation.answers[0].probability == pytest.approx(sum(products))
  assert explanation.null_share == explanation.passages[-1].retrieval_probability
  assert first.utility > 0 and [p.says for p in explanation.passages] == ["Pound", "The", "old"]
  assert all(
    one.probability >= other.probability
    for one, other in zip(explanation.answers, explanation.answers[1:], strict=False)
  )


def test_an_edited_passage_is_searched_and_read_at_once(filler):
  changed = Edits().with_passage(
    0, filler.corpus.write("Britain", "Dollar is the money of Britain")
  )
  (explanation,) = filler.explain([QUERY], edits=changed)
  assert explanation.likeliest == "Dollar"
  assert explanation.passages[0].edited and explanation.passages[0].passage_id == 0
  added = Edits().with_passage(4, filler.corpus.write("", "Yen is the money of France"))
  (explanation,) = filler.explain(["[MASK] is the money of France"], edits=added, target="yen")
  assert 4 in [p.passage_id for p in explanation.passages]
  assert filler.explain([QUERY])[0].likeliest == "Pound"


def test_an_answer_asked_for_comes_first(filler):
  (explanation,) = filler.explain([QUERY], target="euro is", answers=3)
  assert explanation.answers[0].text == "euro is"
  assert explanation.likeliest == explanation.answers[1].text == "Pound"
  assert len(explanation.answers) == 3
  with pytest.raises(ValueError, match=r"'the old yen' has 3 wordpieces; this model fills 1 to 2"):
    filler.explain([QUERY], target="the old yen")


def test_many_texts_are_answered_as_each_alone(filler):
  texts = [QUERY, "[MASK] is the money of France", "[MASK] of Japan"]
  together = filler.explain(texts)
  assert [one.likeliest for one in together] == ["Pound", "Euro", "Yen"]
  for text, one in zip(texts, together, strict=True):
    assert dataclasses.asdict(one) == dataclasses.asdict(filler.explain([text])[0])
