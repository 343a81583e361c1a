"""Why a passage was found: the shares of its score, and the document around it."""

import numpy as np
import pytest

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase

WORDS = "moss fern oak elm stone river grows dries green tall small old".split()
RULES = """# Rules

Keep off the grass. Dogs are not allowed on the lawn at any time of the year.

## Opening

The garden opens at nine. It closes at five. On Mondays it is closed all day long.

The gate at the river opens at ten. It is closed in winter, when the river is high.

## Fees

Entry is free. Guided tours cost five coins, and children pay nothing for a tour.
"""


def encode(texts):
  return np.array([[1 + text.lower().count(c) for c in "aeiourstn"] for text in texts], np.float32)


def records(number=40):
  draw = np.random.default_rng(0)
  texts = [" ".join(draw.choice(WORDS, 9)) + "." for _ in range(number)]
  dated = [(text, f"20{n:02}-01-01") for n, text in enumerate(texts)]
  return [{"id": f"d{n:02}", "text": text, "date": day} for n, (text, day) in enumerate(dated)]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
  path = tmp_path_factory.mktemp("shares")
  return KnowledgeBase.create(path / "kb", records(), encoder=encode, language="en")


@pytest.fixture(scope="module")
def words(tmp_path_factory):
  return KnowledgeBase.create(tmp_path_factory.mktemp("words") / "kb", records(), language="en")


def standardized(scores):
  return (scores - scores.mean()) / scores.std()


@pytest.mark.parametrize("question", ["old moss by the river", "tall oak", "is a stone green"])
def test_shares_are_those_of_each_ranking_and_add_up_to_the_score(base, words, question):
  hits = {hit.id: hit for hit in base.search(question, k=40)}
  ids, texts = zip(*((record["id"], record["text"]) for record in records()), strict=True)
  units = encode([f"\n{text}".strip() for text in texts]).astype(np.float64)
  units /= np.linalg.norm(units, axis=1, keepdims=True)
  asked = encode([question]).astype(np.float64)[0]
  dense = standardized(units @ asked / np.linalg.norm(asked))
  found = {hit.id: hit.score for hit in words.search(question, k=40)}
  sparse = standardized(np.array([found.get(id, 0.0) for id in ids]))
  for id, of_encoder, of_words in zip(ids, dense, sparse, strict=True):
    hit = hits[id]
    assert (hit.encoder, hit.words) == pytest.approx((0.6 * of_encoder, 0.4 * of_words), abs=2e-4)
    assert hit.words + hit.encoder == pytest.approx(hit.score, rel=1e-6, abs=1e-6)
    assert hit.remembered == 0 and abs(hit.reordered) < 1e-6


@pytest.mark.parametrize("by", ["words", "encoder", "fused"])
def test_what_past_questions_age_and_a_reranker_move_are_shares_of_their_own(by, tmp_path):
  base = KnowledgeBase.create(tmp_path / "kb", records(), encoder=encode, language="en")
  before = {hit.id: hit for hit in base.search("green moss", k=40, by=by)}
  base.feedback("green moss", useful="d07", not_useful="d11")
  moved = {hit.id: hit for hit in base.search("green moss", k=40, by=by)}
  assert moved["d07"].remembered > 0.01 and moved["d07"].useful_for == "green moss"
  if "d11" in moved:
    assert moved["d11"].remembered < -0.01
  for id in before.keys() & moved.keys():
    assert moved[id].remembered == pytest.approx(moved[id].score - before[id].score, abs=1e-5)
    assert (moved[id].words, moved[id].encoder) == (before[id].words, before[id].encoder)
  if by != "fused":
    silent = "encoder" if by == "words" else "words"
    assert not any(getattr(hit, silent) for hit in moved.values())
  orders = {"newer": "date:365"}, {"rerank": lambda question, texts: [len(t) for t in texts]}
  for order in orders:
    for hit in base.search("green moss", k=40, by=by, **order):
      assert (hit.words, hit.encoder) == (moved[hit.id].words, moved[hit.id].encoder)
      assert hit.reordered == pytest.approx(hit.score - moved[hit.id].score, abs=1e-5)


def test_the_shares_are_shown_where_they_are_asked_for(base, words):
  shown = str(base.search("green moss", k=1, explain=True))
  (hit,) = base.search("green moss", k=1)
  assert f"(words {hit.words:.3f} + encoder {hit.encoder:.3f})" in shown
  assert "encoder" not in str(base.search("green moss", k=1))
  assert "(words " in str(words.search("green moss", k=1, explain=True))


@pytest.fixture
def garden(tmp_path):
  (tmp_path / "rules.md").write_text("---\nyear: 1958\n---\n" + RULES)
  return KnowledgeBase.create(
    tmp_path / "kb", tmp_path / "rules.md", language="en", passage_words=12
  )


def test_a_hit_has_its_document_and_its_section(garden):
  hits = garden.search("gate at the river", k=2)
  document = hits[0].document()
  assert (document.title, document.fields) == ("Rules", {"year": 1958})
  assert document.text == garden.document("rules.md").text
  assert document.text[hits[0].start : hits[0].end] == hits[0].text
  section = hits[0].section()
  assert "opens at nine" in section and "river is high" in section
  assert "grass" not in section and "coins" not in section and hits[0].heading == "Opening"
  (fee,) = garden.search("coins", k=1)
  assert fee.section().endswith("pay nothing for a tour.") and "winter" not in fee.section()
  (dogs,) = garden.search("dogs", k=1)
  assert dogs.section().startswith("Keep off") or dogs.section().startswith("Rules")


def test_a_document_without_headings_is_one_section(base):
  (hit,) = base.search("moss", k=1)
  assert hit.section() == hit.document().text == hit.text


def test_a_document_that_has_changed_is_not_taken_for_the_one_found(garden):
  (hit,) = garden.search("coins", k=1)
  garden.update([{"id": "rules.md", "text": "Entry costs ten coins."}])
  with pytest.raises(ValueError, match=r"'rules\.md' has changed since it was found"):
    hit.document()
  garden.delete("rules.md")
  with pytest.raises(ValueError, match="search again"):
    hit.section()
