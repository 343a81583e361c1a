"""A knowledge base with an encoder: what is embedded, and how it is searched."""

import concurrent.futures
import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

from realm_jax.checkpoints import saved_models
from realm_jax.index.fusion import fuse_scores
from realm_jax.knowledge_base.encoders.models import Encoder, open_encoder, open_reader
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.learning import query_training as learning
from realm_jax.text.wordpieces import WordPieces
from tests.knowledge_base import tiny_models

SEA = [
  {"id": "ship", "title": "Ship", "text": "A vessel sails. It is of wood.", "year": 1905},
  {"id": "moss", "text": "Moss grows in the shade. It is green.", "year": 1958},
  {"id": "oak", "text": "An oak is a tree.", "year": 1960},
]
SETTINGS = {"language": "en", "passage_words": 6}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
  return tiny_models.write(tmp_path_factory.mktemp("source"))


@pytest.fixture
def embedded(monkeypatch):
  """The passages that are embedded, as they are."""
  passages, embed = [], Encoder.passages

  def recorded(self, given):
    passages.extend(given)
    return embed(self, given)

  monkeypatch.setattr(Encoder, "passages", recorded)
  return passages


@pytest.fixture
def base(source, tmp_path):
  return KnowledgeBase.create(tmp_path / "kb", SEA, encoder=source, **SETTINGS)


def test_an_encoder_is_opened_while_a_reader_is(monkeypatch, tmp_path):
  opening, go_on = threading.Event(), threading.Event()

  def open_slowly(path):
    opening.set()
    go_on.wait(60)
    raise ValueError("there is none")

  monkeypatch.setattr(Encoder, "__init__", lambda self, path: None)
  monkeypatch.setattr(saved_models, "load", open_slowly)
  with concurrent.futures.ThreadPoolExecutor(2) as pool:
    try:
      reader = pool.submit(open_reader, str(tmp_path))
      assert opening.wait(10)
      encoder = pool.submit(open_encoder, str(tmp_path)).result(timeout=10)
      assert encoder is open_encoder(str(tmp_path)) and not reader.done()
    finally:
      go_on.set()
  with pytest.raises(ValueError, match="there is none"):
    reader.result()


def test_scores_fuse_the_encoder_and_bm25(base, tmp_path):
  words = KnowledgeBase.create(tmp_path / "words", SEA, **SETTINGS)
  (model,) = os.listdir(os.path.join(base.path, "models"))
  encoder = open_encoder(os.path.join(base.path, "models", model))
  question = "is the tree of wood"
  hits = sorted(base.search(question, k=9), key=lambda hit: (hit.id, hit.passage))
  by_words = {(hit.id, hit.passage): hit.score for hit in words.search(question, k=9)}
  # Each passage alone: what it is embedded with does not matter.
  alone_NxE = np.concatenate([encoder.passages([(hit.title, hit.text)]) for hit in hits])
  expected_N = fuse_scores(
    alone_NxE @ encoder.question(question),
    np.array([by_words.get((hit.id, hit.passage), 0) for hit in hits]),
  )
  assert len(hits) == 5 and 0 < len(by_words) < 5
  np.testing.assert_allclose([hit.score for hit in hits], expected_N, rtol=1e-5, atol=1e-5)


def test_only_new_text_is_embedded(base, embedded):
  base.update([{**SEA[1], "year": 2026}])
  assert embedded == []
  base.update([{**SEA[1], "text": "Moss grows in the shade. It is brown."}, *SEA[::2]])
  assert embedded == [("", "It is brown.")]
  base.update([{**SEA[0], "title": "Boat"}])
  assert sorted(embedded[1:]) == [("Boat", "A vessel sails."), ("Boat", "It is of wood.")]
  base.delete("oak")
  base.compact()
  assert len(embedded) == 3


def test_a_knowledge_base_needs_nothing_outside_its_folder(source, tmp_path):
  copied = shutil.copytree(source, tmp_path / "source")
  KnowledgeBase.create(tmp_path / "kb", SEA, encoder=copied, **SETTINGS)
  shutil.rmtree(copied)
  moved = shutil.move(tmp_path / "kb", tmp_path / "moved")
  base = KnowledgeBase(moved)
  base.add([{"id": "elm", "text": "An elm is a tree."}])
  assert len(base.search("zzz", k=9)) == 6


def test_an_encoder_of_another_vocabulary_is_refused(source, tmp_path):
  copied = shutil.copytree(source, tmp_path / "source")
  shutil.rmtree(copied / "vocabulary")
  with pytest.raises(FileNotFoundError, match="vocabulary"):
    KnowledgeBase.create(tmp_path / "kb", encoder=copied)
  WordPieces([*tiny_models.PIECES, "moss"]).save(copied / "vocabulary")
  with pytest.raises(ValueError, match="vocabulary"):
    KnowledgeBase.create(tmp_path / "kb", encoder=copied)


def test_a_killed_copy_of_an_encoder_is_removed(base, source, tmp_path):
  left = tmp_path / "kb" / "models" / ("0" * 16) / "checkpoints" / "0"
  left.mkdir(parents=True)
  (left / "half").write_text("")
  (model,) = set(os.listdir(tmp_path / "kb" / "models")) - {"0" * 16}
  base.delete("oak")
  assert os.listdir(tmp_path / "kb" / "models") == [model]


def test_training_keeps_the_ranking_unless_probes_prefer_another(source, tmp_path):
  draw = random.Random(0)
  documents = []
  for number in range(60):
    own = ["".join(draw.choices("bcdfghklmnprst", k=6)) for _ in range(12)]
    sentences = (" ".join([own[0], "has", *draw.sample(own, 8)]) for _ in range(4))
    text = " ".join(f"{sentence}." for sentence in sentences)
    documents.append({"id": str(number), "title": own[0], "text": text})
  base = KnowledgeBase.create(tmp_path / "kb", documents, language="en", encoder=source)
  with base._folder.exclusively() as edit:
    edit.settings = dataclasses.replace(edit.settings, ranking="encoder")
  choice = base.train()
  assert choice.chosen in ("words", "fused"), "the encoder finds at random"
  assert KnowledgeBase(base.path).commit.settings.ranking == choice.chosen
  for probe, mean in choice.means["encoder"].items():
    assert choice.means[choice.chosen][probe] > mean
  assert base.train().chosen == choice.chosen
  with base._folder.exclusively() as edit:
    edit.settings = dataclasses.replace(edit.settings, ranking="words")
  assert not base.search("zzz"), "words rank, so what shares none is not found"
  with pytest.raises(ValueError, match="no encoder"):
    KnowledgeBase.create(tmp_path / "words", SEA, **SETTINGS).train()


def letters(number):
  return "".join(chr(ord("a") + int(digit)) for digit in str(number))


@pytest.mark.timeout(300)
def test_training_on_questions_teaches_the_query_tower_alone(
  source, tmp_path, embedded, monkeypatch
):
  optimizer = dataclasses.replace(learning._OPTIMIZER, learning_rate=3e-3)
  monkeypatch.setattr(learning, "_OPTIMIZER", optimizer)  # for a small model
  documents = [{"id": str(n), "text": f"{letters(n * 7)}."} for n in range(40)]
  base = KnowledgeBase.create(tmp_path / "kb", documents, encoder=source, **SETTINGS)
  file = tmp_path / "questions.jsonl"
  asked = [
    {"question": f"{5 * 'qrst'[n % 4]} {letters(n)}", "answer": letters((n % 4 + 31) * 7)}
    for n in range(200)
  ]
  asked += [{"question": f"{letters(n)} u", "answer": "nowhere"} for n in range(20)]
  file.write_text("\n".join(map(json.dumps, asked)))
  (some := tmp_path / "some.jsonl").write_text("\n".join(map(json.dumps, asked[::5])))
  before, there = base.evaluate(some).figures["encoder"]["recall@5"], len(embedded)
  choice = base.train(questions=file)
  assert choice.chosen == "trained"
  gained = choice.comparisons["trained"]["recall@5"]
  assert gained.interval[0] > 0
  opened = KnowledgeBase(base.path)
  assert opened.commit.settings.ranking == "encoder", "words mislead, and are not used any more"
  assert opened.evaluate(some).figures["encoder"]["recall@5"] > before + 0.1
  assert len(embedded) == there, "passages keep their embeddings"
  opened.add([{"id": "new", "text": "New."}])
  fresh = KnowledgeBase.create(
    tmp_path / "fresh", [{"id": "new", "text": "New."}], encoder=source, **SETTINGS
  )
  (segment,) = fresh._folder.newest().segments
  np.testing.assert_array_equal(
    opened._folder.newest().segments[-1].embeddings(), segment.embeddings()
  )


def test_training_that_finds_no_more_changes_nothing(base, tmp_path):
  file = tmp_path / "questions.jsonl"
  file.write_text(
    "\n".join([json.dumps({"question": f"what is {n}", "answer": "tree"}) for n in range(100)])
  )
  commit = base.commit
  assert base.train(questions=file, minutes=0.001).chosen == "start" and base.commit == commit
  assert len(base.past_questions(count=1000)) == 100
  base.forget(past.question for past in base.past_questions(count=1000))
  file.write_text(json.dumps({"question": "what is an oak", "answer": "tree"}))
  with pytest.raises(ValueError, match="too few"):
    base.train(questions=file)
  with pytest.raises(ValueError, match="minutes=1"):
    base.train(minutes=1)
  for minutes in (0, -1, float("nan")):
    with pytest.raises(ValueError, match="takes more than 0"):
      base.train(questions=file, minutes=minutes)


OPEN = """
import sys
from realm_jax import KnowledgeBase
base = KnowledgeBase(sys.argv[1])
assert len(base) == 3 and "jax" not in sys.modules
assert len(base.search("zzz", k=2)) == 2 and "tensorflow" not in sys.modules
"""


def test_jax_waits_for_a_question_and_tensorflow_is_not_needed(base):
  subprocess.run([sys.executable, "-c", OPEN, base.path], check=True)
