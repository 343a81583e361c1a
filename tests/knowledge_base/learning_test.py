"""What is learned from questions: memory of them, and an adapter of their embeddings."""

import dataclasses
import json
import zlib

import numpy as np
import pytest

from realm_jax.data.questions import Question
from realm_jax.knowledge_base import choosing
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.learning import query_training as learning
from realm_jax.knowledge_base.learning import search
from realm_jax.knowledge_base.learning.adapter import Adapter, Seen
from realm_jax.knowledge_base.training_questions import distinct, key_of

WORDS = [f"{a}{b}ing" for a in "bdfgklmprt" for b in ("al", "en", "or", "ush")]


@pytest.fixture
def base(tmp_path):
  documents = [{"id": word, "text": f"Something about {word}."} for word in WORDS]
  return KnowledgeBase.create(tmp_path / "kb", documents, language="en")


@pytest.fixture
def shifted(base):
  """A snapshot of random embeddings, from which those of questions are shifted."""
  draw = np.random.default_rng(0)
  passages_NxE = draw.normal(size=(len(WORDS), 8)).astype(np.float32)
  passages_NxE /= np.linalg.norm(passages_NxE, axis=1, keepdims=True)
  shift_E = draw.normal(size=8)
  shift_E /= np.linalg.norm(shift_E)

  def embed(text):
    word, number = text.split()
    noise_E = np.random.default_rng(int(number)).normal(size=8) * 0.05
    question_E = passages_NxE[WORDS.index(word)] + shift_E + noise_E
    return (question_E / np.linalg.norm(question_E)).astype(np.float32)

  snapshot = base._folder.newest()
  (segment,) = snapshot.segments
  segment = dataclasses.replace(segment, embeddings_NxE=passages_NxE)
  return dataclasses.replace(snapshot, segments=(segment,), embed=embed)


def found(snapshot, numbers):
  return np.mean(
    [
      search.hits(snapshot, f"{word} {n}", 1, by="encoder")[0].id == word
      for n in numbers
      for word in WORDS
    ]
  )


def test_an_adapter_learns_how_questions_are_embedded(shifted, base):
  questions = [
    Question(id="", text=f"{word} {n}", answers=(word,), regex=False)
    for n in range(10)
    for word in WORDS
  ]
  questions += [
    Question(id="", text=f"{WORDS[0]} {n}", answers=(answer,), regex=False)
    for n, answer in ((50, "nowhere"), (51, "something"))  # nothing can be learned from these
  ]
  adapter = learning.adapt(shifted, questions, seconds=60)
  adapted = dataclasses.replace(shifted, adapt=adapter)
  before, after = found(shifted, range(10, 13)), found(adapted, range(10, 13))
  assert before < 0.5 and after > 0.9
  question_E = shifted.embed(f"{WORDS[0]} 99")
  assert np.linalg.norm(adapter(question_E)) == pytest.approx(1, rel=1e-5)
  opened = Adapter.open(base.path, adapter.write(base.path))
  np.testing.assert_array_equal(opened(question_E), adapter(question_E))
  assert learning.adapt(shifted, questions[-2:], seconds=60) is None


def write(path, asked):
  path.write_text("\n".join(map(json.dumps, asked)))
  return path


def test_training_remembers_questions_and_goes_on_with_what_was_fed_back(base, tmp_path):
  kinds = ("something", "about the something", "about")
  asked = [
    {"question": f"{kind} {n} of it all", "answer": WORDS[n]}
    for n in range(len(WORDS))
    for kind in kinds
  ]
  choice = base.train(questions=write(tmp_path / "questions.jsonl", [*asked, *asked[:9]]))
  assert choice.chosen == "start" and choice.means.keys() == {"start", "without memory"}
  past = base.past_questions(count=1000)
  assert len(past) == len(asked) and all(one.answers for one in past)
  assert base.search("ABOUT  39 of it all", k=1)[0].id == WORDS[39]
  assert base.train().means.keys() == choice.means.keys()
  assert len(base.past_questions(count=1000)) == len(asked)


def test_questions_to_compare_by_were_not_learned_from(base, tmp_path):
  questions = [
    Question(id="", text=text, answers=(word,), regex=False)
    for number, word in enumerate(WORDS)
    for text in (f"who knows {word}", f"WHO  knows {word}", f"tell of {word}", f"none {number}")
  ]
  questions = distinct(questions)
  assert len(questions) == 3 * len(WORDS)
  snapshot = base._folder.newest()
  past = {one.key: one for one in choosing._remembered(questions, snapshot)}
  learned, asked = choosing._split(questions, past, Seen())
  assert len(learned) + len(asked) == len(questions) and 10 < len(asked) < len(questions) / 2
  passages = [{past[key_of(q)].useful for q in side} - {()} for side in (learned, asked)]
  assert not passages[0] & passages[1], "questions for one passage are on one side"
  some, others = choosing._split(questions[::-1][:90], past, Seen())
  assert {*map(key_of, others)} <= {*map(key_of, asked)}, "the side stays the same"
  seen = Seen().plus(key_of(q) for q in asked[:5])
  again = choosing._split(questions, past, seen)
  assert [*map(len, again)] == [len(learned), len(asked) - 5]
  name = seen.write(base.path)
  assert key_of(asked[0]) in Seen.open(base.path, name) and Seen().write(base.path) == ""


def scattered(path, *, noise, words=""):
  """Returns a base whose questions are embedded near their passages, as far as noise lets them."""

  def draw(text):
    return np.random.default_rng(zlib.crc32(text.encode())).normal(size=64)

  def encode(texts):
    names = [
      next((w for w in text.split() if w.strip(".") in NAMES), "").strip(".") for text in texts
    ]
    asks = [text.startswith("ask") for text in texts]
    return np.array(
      [
        draw(name) + (noise * draw(text) if is_asked else 0)
        for name, text, is_asked in zip(names, texts, asks, strict=True)
      ],
      np.float32,
    )

  documents = [
    {"id": name, "text": f"Of {name} {words} {NAMES[(7 * n + 3) % len(NAMES)] if words else ''}."}
    for n, name in enumerate(NAMES)
  ]
  return KnowledgeBase.create(path, documents, language="en", encoder=encode)


NAMES = [f"{a}{b}{c}x" for a in "bdfg" for b in "aeiou" for c in "klmnr"]


def test_a_ranking_that_is_better_without_training_is_chosen_alone(tmp_path, monkeypatch):
  monkeypatch.setattr(learning, "_ADAPTER_EPOCHS", 0)  # an adapter that does nothing
  base = scattered(tmp_path / "kb", noise=0.1)
  misled = [{"id": f"m{n}", "text": f"ask now and then {n} {n} {NAMES[n]}"} for n in range(100)]
  base.add(misled)
  asked = [
    {"question": f"ask {name} now and then {n}", "answer": f"of {name}"}
    for name in NAMES
    for n in range(2)
  ]
  choice = base.train(questions=write(tmp_path / "questions.jsonl", asked))
  assert {"start", "without memory", "start, words", "start, encoder"} < choice.means.keys()
  assert choice.means["adapted"] == choice.means["start, encoder"]
  assert "trained" not in choice.means, "only ours has a tower of questions"
  assert choice.chosen in ("start", "start, encoder") and not base.commit.settings.adapter


def test_what_is_said_and_forgotten_during_training_stays_so(base, monkeypatch):
  for number in range(3):
    for word in WORDS:
      base.feedback(f"who knows {word} number {number}", useful=word)
  other, compare = KnowledgeBase(base.path), choosing._compare

  def meanwhile(*arguments):
    other.forget(f"who knows {WORDS[0]} number 0")
    other.feedback(f"who knows {WORDS[1]} number 0", not_useful=WORDS[1], useful=WORDS[2])
    other.feedback("who came late", useful=WORDS[3])
    return compare(*arguments)

  monkeypatch.setattr(choosing, "_compare", meanwhile)
  base.train()
  past = {one.question: one for one in base.past_questions(count=1000)}
  assert f"who knows {WORDS[0]} number 0" not in past and "who came late" in past
  judged = past[f"who knows {WORDS[1]} number 0"]
  assert [one.id for one in judged.useful] == [WORDS[2]]
  assert [one.id for one in judged.not_useful] == [WORDS[1]]


def test_where_memory_harms_the_base_does_without_and_says_so(base, tmp_path, monkeypatch):
  asked = [{"question": f"{word} {n}", "answer": word} for n in range(3) for word in WORDS]
  search = choosing.Candidate.search

  def harmed(candidate, question, k):
    return search(candidate, question, k)[: 0 if candidate.memory is not None else k]

  monkeypatch.setattr(choosing.Candidate, "search", harmed)
  choice = base.train(questions=write(tmp_path / "questions.jsonl", asked))
  assert choice.chosen == "without memory" and not base.commit.settings.memory
  assert len(base.past_questions(count=1000)) == len(asked)
  assert not base.search(asked[0]["question"])[0].useful_for
  monkeypatch.undo()
  base.train(questions=tmp_path / "questions.jsonl")
  assert base.past_questions()


def test_titles_that_are_no_longer_found_keep_a_candidate_out(base, tmp_path):
  base.update([{"id": word, "title": word, "text": f"Something about {word}."} for word in WORDS])
  snapshot = base._folder.newest()
  asked = [Question(id="", text=f"{word} it", answers=(word,), regex=False) for word in WORDS]
  start = choosing.Candidate(snapshot=snapshot, ranking="words", memory=None)

  class Blind(choosing.Candidate):
    def search(self, question, k):
      return super().search(question if "it" in question.split() else "nothing", k)

  class Poor(choosing.Candidate):
    def search(self, question, k):
      return super().search(question, k)[: 0 if "it" in question.split() else k]

  fields = {"snapshot": snapshot, "ranking": "words", "memory": None}
  candidates = {"start": Poor(**fields), "better": start, "blind": Blind(**fields)}
  assert choosing._compare(candidates, asked).chosen == "better"
  del candidates["better"]
  choice = choosing._compare(candidates, asked)
  assert choice.comparisons["blind"]["recall@5"].difference == 1 and choice.chosen == "start"


@pytest.mark.parametrize(("number", "changed"), [(40, 0.25), (100, 0.1)])
def test_nothing_better_is_seldom_taken_for_better(number, changed, monkeypatch):
  draw, taken = np.random.default_rng(0), 0
  monkeypatch.setattr(choosing, "_titles", lambda snapshot: [])
  monkeypatch.setattr(choosing, "_naming", lambda snapshot, questions: None)
  fields = {"snapshot": None, "ranking": "words", "memory": None}
  candidates = {name: choosing.Candidate(**fields) for name in ("start", *"abcd")}
  for _ in range(40):
    start = draw.random(number) < 0.5
    found = [start, *(start ^ (draw.random(number) < changed) for _ in "abcd")]
    of_each = iter([{"recall@5": one.astype(float)} for one in found])
    monkeypatch.setattr(choosing, "found_answers", lambda *_, of=of_each, **__: next(of))
    taken += choosing._compare(candidates, [None] * number).chosen != "start"
  assert taken <= 1, "without a correction for four comparisons, two and three"
