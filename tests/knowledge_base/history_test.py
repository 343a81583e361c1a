"""After any history, searches find what they find in a knowledge base made afresh."""

import random

import pytest

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.store import edit
from tests.knowledge_base import tiny_models

WORDS = [f"{a}{b}" for a in ("mo", "fe", "al", "ro") for b in ("ss", "rn", "ga", "ck", "lm")]
YEARS = range(1950, 1960)


def document(id, draw):
  sentences = [
    " ".join(draw.choices(WORDS, k=draw.randint(3, 9))).capitalize() + "."
    for _ in range(draw.randint(1, 6))
  ]
  fields = {"year": draw.choice(YEARS)} if draw.random() < 0.8 else {}
  title = draw.choice(WORDS) if draw.random() < 0.5 else ""
  return {"id": id, "title": title, "text": " ".join(sentences), **fields}


def act(base, there, draw):
  """Changes a knowledge base and the documents that it should have."""
  ids = [f"d{n}" for n in range(40)]
  what = draw.choice(["add", "update", "update", "delete", "delete", "sync", "compact", "again"])
  chosen = draw.sample(ids, draw.randint(1, 6))
  documents = [document(id, draw) for id in chosen]
  if what == "add":
    documents = [d for d in documents if d["id"] not in there]
    base.add(documents)
  elif what == "update":
    base.update(documents)
  elif what == "again":
    documents = list(there.values())
    assert base.add(documents).unchanged == len(there)
  elif what == "sync" and draw.random() < 0.3:
    base.sync(documents)
    there.clear()
  elif what == "delete":
    gone = [id for id in chosen if id in there]
    base.delete(gone)
    for id in gone:
      del there[id]
    return
  else:
    base.compact()
    return
  there.update({d["id"]: d for d in documents})


def found(base, question, k, where):
  return [
    (hit.id, hit.passage, hit.text, hit.score) for hit in base.search(question, k=k, where=where)
  ]


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
  return tiny_models.write(tmp_path_factory.mktemp("encoder"))


@pytest.mark.parametrize(("seed", "embeds"), [(0, False), (1, False), (3, True)])
def test_after_any_history_searches_find_what_a_fresh_build_finds(
  seed, embeds, encoder, tmp_path, monkeypatch
):
  monkeypatch.setattr(edit, "_FAN", 3)
  monkeypatch.setattr(edit, "_SMALL", 8)
  draw = random.Random(seed)
  settings = {"language": "en", "passage_words": 12, "encoder": encoder if embeds else None}
  base = KnowledgeBase.create(tmp_path / "kb", **settings)
  reader = KnowledgeBase(tmp_path / "kb")
  there = {}
  for number in range(25):
    act(base, there, draw)
    assert len(base) == len(reader) == len(there)
    if number % 8:
      continue
    order = draw.sample(list(there.values()), len(there))
    fresh = KnowledgeBase.create(tmp_path / str(number), order, **settings)
    for _ in range(8):
      question = " ".join(draw.choices(WORDS, k=draw.randint(1, 4)))
      low = draw.choice(YEARS)
      years = {d["year"] for d in there.values() if "year" in d}
      where = draw.choice([None, {"year": low}, {"year": {"gte": low}}, {"year": [low, low + 1]}])
      if where and not years:
        continue
      k = draw.choice([1, 3, 10, 1000])
      expected = found(fresh, question, k, where)
      assert found(base, question, k, where) == expected
      assert found(reader, question, k, where) == expected


_SENTENCES = {
  "en": "The old houses of the town are made of red stone and wood from the hills near the sea.",
  "de": "Die alten Häuser der Stadt sind aus rotem Stein und aus Holz von den Hügeln am Meer.",
  "fr": "Les vieilles maisons de la ville sont en pierre rouge et en bois, au bord de la mer.",
  "ru": "Старые дома города построены из красного камня и дерева с холмов у моря.",
  "da": "De gamle huse i byen er bygget af røde sten og af træ fra bakkerne ved havet.",
}
_LITTLE = ["Oslo", "Berlin 1900", "La Boheme", "Hotel garni", "Haus und Hof", "arm", "", "1900"]


@pytest.mark.parametrize("seed", [0, 1])
def test_languages_are_those_of_the_documents_that_are_there(seed, tmp_path):
  draw = random.Random(seed)
  base, there, known = KnowledgeBase.create(tmp_path / "kb", passage_words=12), {}, set()
  for number in range(30):
    main = draw.choice([*_SENTENCES])
    for id in draw.sample(range(20), draw.randint(1, 9)):
      text = _SENTENCES[main if draw.random() < 0.8 else draw.choice([*_SENTENCES])]
      text = draw.choice(_LITTLE) if draw.random() < 0.4 else text
      there[str(id)] = {"id": id, "title": f"{draw.choice(_LITTLE)} {number}", "text": text}
    base.update(there.values())
    if draw.random() < 0.6:
      base.delete(gone := draw.sample([*there], len(there) // 2))
      there = {id: document for id, document in there.items() if id not in gone}
    if number % 10 == 5:
      base.compact()
    order = draw.sample([*there.values()], len(there))
    fresh = KnowledgeBase.create(tmp_path / str(number), order, passage_words=12)
    known.add(str(fresh).partition("language ")[2])
    assert str(base).partition("passages")[2] == str(fresh).partition("passages")[2]
    for question in (*_SENTENCES.values(), *_LITTLE, "house", "Haus", "maison", "дом", "der arm"):
      assert found(base, question, 30, None) == found(fresh, question, 30, None)
  assert len(known) > 5
