"""What is said of passages holds once a passage is really gone or changed."""

import dataclasses

import numpy as np
import pytest

from realm_jax.corpus.edits import Edits
from realm_jax.devices.datatypes import NULL_PASSAGE_ID

QUERY, QUESTION = "[MASK] is the money of Britain", "what is the money of Britain"


def test_what_fills_a_mask_and_its_evidence(filler):
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


@pytest.mark.parametrize(
  ("kind", "query"),
  [("filler", "[MASK] is the money of {}"), ("answerer", "what is the money of {}")],
)
def test_an_edited_passage_is_searched_and_read_at_once(request, kind, query):
  model = request.getfixturevalue(kind)
  changed = Edits().with_passage(0, model.corpus.write("Britain", "Dollar is the money of Britain"))
  (explanation,) = model.explain([query.format("Britain")], edits=changed)
  first = explanation.passages[0]
  assert (explanation.likeliest, first.edited, first.passage_id) == ("Dollar", True, 0)
  added = Edits().with_passage(4, model.corpus.write("", "Yen is the money of Japan, old"))
  (explanation,) = model.explain([query.format("Japan")], edits=added)
  shares = {p.passage_id: p.retrieval_probability for p in explanation.passages}
  assert shares[2] == pytest.approx(shares[4]) and explanation.likeliest == "Yen"
  assert kind == "filler" or shares == pytest.approx({2: 0.5, 4: 0.5})
  assert model.explain([query.format("Britain")])[0].likeliest == "Pound"


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


def test_the_answer_and_its_evidence(answerer):
  (explanation,) = answerer.explain([QUESTION])
  assert explanation.likeliest == explanation.answers[0].text == "Pound"
  assert [p.passage_id for p in explanation.passages] == [0, 3]
  assert [p.says for p in explanation.passages] == ["Pound", "The"]
  first = explanation.passages[0]
  assert (first.title, first.spans, first.edited) == ("Britain", ((0, 5),), False)
  prior = 1 / (1 + np.exp(3 * (0.9 - 1)))
  assert first.retrieval_probability == pytest.approx(prior, rel=1e-5)
  # Six words: one of score 6, five of 0, and five pairs of -1; the other passage has seven words.
  total, other = np.exp(6) + 5 + 5 * np.exp(-1), np.exp(6) + 6 + 6 * np.exp(-1)
  assert first.answer_probability == pytest.approx(np.exp(6) / total, rel=1e-5)
  joint = np.exp(3 + 6) / (np.exp(3) * total + np.exp(2.7) * other)
  assert first.contribution == pytest.approx(joint, rel=1e-5)
  assert explanation.answers[0].probability == pytest.approx(first.contribution)
  assert explanation.null_share is first.utility is None


def test_the_same_words_in_several_places_are_one_answer_as_likely_as_the_best(answerer):
  (explanation,) = answerer.explain([QUESTION], target="MONEY  of", answers=100)
  assert explanation.answers[0].text == "money of"
  assert [p.spans for p in explanation.passages] == [((13, 21),), ((8, 16),)]
  best, other = (p.contribution for p in explanation.passages)
  assert explanation.answers[0].probability == pytest.approx(best) and best > other > 0
  assert explanation.likeliest == explanation.answers[1].text == "Pound"


def test_what_is_said_of_a_removal_is_what_a_removal_does(answerer):
  (explanation,) = answerer.explain([QUESTION], target="of")
  for passage in explanation.passages:
    edits = Edits().with_passage(passage.passage_id, None)
    (after,) = answerer.explain([QUESTION], edits=edits, target="of")
    assert passage.probability_without == pytest.approx(after.answers[0].probability, rel=1e-5)
    assert passage.answer_without == after.likeliest
    assert passage.passage_id not in [p.passage_id for p in after.passages]


def test_places_count_characters_not_bytes(answerer):
  edits = Edits().with_passage(0, answerer.corpus.write("Britain", "é ü dollar in Britain"))
  (explanation,) = answerer.explain([QUESTION], edits=edits, target="Dollar")
  assert explanation.passages[0].spans == ((4, 10),)
  assert explanation.answers[0].text == "dollar" and explanation.likeliest == "é"


def test_an_explained_answer_is_the_answer(answerer):
  texts = [QUESTION, "money of France", "Japan", "old", "is here"]
  for found, explanation in zip(answerer.answer(texts), answerer.explain(texts), strict=True):
    (answer,) = found.answers
    assert explanation.likeliest == explanation.answers[0].text == answer.text
    assert explanation.answers[0].probability == pytest.approx(answer.probability, rel=1e-6)
    shares = {p.passage_id: p.retrieval_probability for p in explanation.passages}
    probabilities = dict(zip(found.passage_ids, found.retrieval_probabilities, strict=True))
    assert shares == pytest.approx(probabilities, rel=1e-6)
    spans = next(p.spans for p in explanation.passages if p.passage_id == answer.passage_id)
    assert (answer.start_char, answer.limit_char) in spans
