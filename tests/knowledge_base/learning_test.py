"""What is learned from questions: memory of them, and an adapter of their embeddings."""

import dataclasses
import json

import numpy as np
import pytest

from realm_jax.data.questions import Question
from realm_jax.knowledge_base import learning
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.learned import Adapter

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
      snapshot.search(f"{word} {n}", 1, by="encoder")[0].id == word
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


def test_training_remembers_questions_and_goes_on_with_what_was_fed_back(base, tmp_path):
  file = tmp_path / "questions.jsonl"
  asked = [
    {"question": f"{kind} {n} of it all", "answer": WORDS[n]}
    for n in range(len(WORDS))
    for kind in ("something", "about the something", "about")
  ]
  file.write_text("\n".join(map(json.dumps, asked)))
  choice = base.train(questions=file)
  assert choice.chosen == "start"
  assert choice.means["start"]["recall@5"] > choice.means["without memory"]["recall@5"]
  past = base.past_questions(count=1000)
  assert len(past) == len(asked) and all(one.answers for one in past)
  assert base.search("about 39 of it all", k=1)[0].id == WORDS[39]
  assert base.train().means.keys() == choice.means.keys()
  assert len(base.past_questions(count=1000)) == len(asked)
