"""A knowledge base with so many passages that their embeddings are in cells."""

import random
import shutil
import zlib

import numpy as np
import pytest

from realm_jax.index.vectors import cells
from realm_jax.knowledge_base import folder
from realm_jax.knowledge_base.encoders import models
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from tests.index import dense_bm25

WORDS = [f"{a}{b}" for a in ("mo", "fe", "al", "ro") for b in ("ss", "rn", "ga", "ck", "lm")]


class Encoder:
  """Embeds a text near the others with its first word."""

  def passages(self, passages):
    rows = []
    for _, text in passages:
      first, draw = (
        np.random.default_rng(zlib.crc32(part.encode())) for part in (text.split()[0].lower(), text)
      )
      rows.append(first.normal(size=16) + 0.3 * draw.normal(size=16))
    return np.array(rows, np.float32).reshape(-1, 16)

  def question(self, text):
    return self.passages([("", text)])[0]


@pytest.fixture(autouse=True)
def few(monkeypatch):
  encoder = Encoder()
  monkeypatch.setattr(models, "copy_model", lambda directory, source, reads: "0" * 16)
  monkeypatch.setattr(folder.Folder, "encoder", lambda self, name: encoder)
  monkeypatch.setattr(cells, "FEWEST", 500)


def document(number, draw):
  text = " ".join(draw.choices(WORDS, k=8))
  return {"id": f"d{number}", "text": f"{text}.", "year": 1900 + number % 100}


@pytest.fixture
def documents():
  draw = random.Random(0)
  return [document(number, draw) for number in range(1200)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  return tmp_path_factory.mktemp("made") / "kb"


@pytest.fixture
def base(tmp_path, made, documents):
  if not made.exists():
    KnowledgeBase.create(made, documents, language="en", encoder="any")
  return KnowledgeBase(shutil.copytree(made, tmp_path / "kb"))


def agreement(base, where=None, k=10):
  """Returns the share of the exact best that a search finds, and the largest error of scores."""
  shares, error, draw = [], 0.0, random.Random(1)
  for _ in range(50):
    question = " ".join(draw.choices(WORDS, k=3))
    found, exact = (
      {hit.id: hit.score for hit in base.search(question, k=k, where=where, exact=exact)}
      for exact in (False, True)
    )
    both = found.keys() & exact.keys()
    shares.append(len(both) / max(1, len(exact)))
    error = max([error, *(abs(found[id] - exact[id]) for id in both)])
  return np.mean(shares), error


def test_nearly_the_same_is_found_with_the_same_scores(base):
  share, error = agreement(base)
  assert share > 0.97 and error < 1e-5, "what is near by meaning or best by words is read"
  assert agreement(base, where={"year": 1950}) == (1, pytest.approx(0, abs=1e-5)), "few match"
  assert agreement(base, where={"year": {"gte": 1920}})[0] > 0.97
  read = base._folder.newest().segments[0].cells
  assert 1 < read.probes < len(read.ends) / 2
  assert f"a search reads {read.probes} of {len(read.ends)} cells" in str(base)


def test_changes_are_found_and_scores_are_those_of_a_fresh_base(base, documents, tmp_path):
  draw = random.Random(2)
  base.search("moss", k=3)  # so that moments are known
  for number in range(3):
    changed = [document(n, draw) for n in range(number * 40, number * 40 + 60)]
    base.update(changed)
    documents = [d for d in documents if d["id"] not in {c["id"] for c in changed}] + changed
  base.delete([d["id"] for d in documents if d["text"].startswith("moss")])
  documents = [d for d in documents if not d["text"].startswith("moss")]
  fresh = KnowledgeBase.create(tmp_path / "fresh", documents, language="en", encoder="any")
  for opened in (base, KnowledgeBase(base.path)):
    assert len(opened) == len(fresh) == len(documents)
    assert sum(not live.all() for live in opened._folder.newest().live) > 0, "deleted, not merged"
    share, error = agreement(opened)
    assert share > 0.97 and error < 1e-5
    for question in ("moss fern", "alga rock elm"):
      exact, again = (
        [(hit.id, hit.score) for hit in one.search(question, k=30, exact=True)]
        for one in (opened, fresh)
      )
      assert exact == again
  before = [(hit.id, hit.score) for hit in base.search("moss rolm", k=30, exact=True)]
  base.compact()
  assert [(hit.id, hit.score) for hit in base.search("moss rolm", k=30, exact=True)] == before


def test_folders_without_cells_are_searched_and_get_them_with_a_merge(
  documents, tmp_path, monkeypatch
):
  with monkeypatch.context() as before:
    before.setattr(cells, "FEWEST", 10**9)
    KnowledgeBase.create(tmp_path / "kb", documents, language="en", encoder="any")
  old = KnowledgeBase(tmp_path / "kb")
  assert agreement(old) == (1, 0) and "a search reads" not in str(old)
  old.delete("d7")
  old.compact()
  assert "a search reads" in str(old) and agreement(old)[0] > 0.97


HISTORIES = {
  "none": lambda base, documents: None,
  "all near a question deleted": lambda base, documents: base.delete(
    [d["id"] for d in documents if d["text"].startswith(("moss", "mock"))]
  ),
  "nearly all deleted, in two steps": lambda base, documents: (
    base.delete([d["id"] for d in documents[100:700]]),
    base.delete([d["id"] for d in documents[700:] if not d["text"].startswith("rolm")]),
  ),
  "all near a question moved away": lambda base, documents: base.update(
    [d | {"text": "rolm " + d["text"]} for d in documents if d["text"].startswith("moss")]
  ),
  "deleted, and added again": lambda base, documents: (
    base.delete([d["id"] for d in documents if d["text"].startswith("moss")]),
    base.add([d for d in documents if d["text"].startswith("moss")][:5]),
  ),
  "compacted after deleting": lambda base, documents: (
    base.delete([d["id"] for d in documents if d["text"].startswith("moss")]),
    base.compact(),
  ),
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
@pytest.mark.parametrize("merges", [True, False])
def test_as_many_are_found_as_match_after_every_history(
  base, documents, history, merges, monkeypatch
):
  if not merges:
    monkeypatch.setattr(folder, "due", lambda snapshot: [])
  history(base, documents)
  opened, shares = KnowledgeBase(base.path), []
  for where in (None, {"year": {"gte": 1950}}, {"year": [1907, 1908]}):
    for by in ("encoder", "fused"):
      for k in (1, 150, 2000):
        for question in ("mock moss", "rolm"):
          found = opened.search(question, k=k, by=by, where=where)
          exact = opened.search(question, k=k, by=by, where=where, exact=True)
          assert len(found) == len(exact), (where, by, k, question)
          ids = {hit.id for hit in found} & {hit.id for hit in exact}
          shares.append(len(ids) / max(1, len(exact)))
  assert np.mean(shares) > 0.97


def test_searches_have_the_scores_of_the_dense_fusion(base, documents):
  encoder, draw = Encoder(), random.Random(3)
  base.delete([d["id"] for d in documents[::7]])
  changed = [document(n, draw) for n in range(40)]
  base.update(changed)
  there = [d for n, d in enumerate(documents) if n % 7]
  by_id = {d["id"]: d for d in there + changed}
  assert len(base) == len(by_id)
  texts = [d["text"] for d in by_id.values()]
  embeddings_NxE = encoder.passages([("", text) for text in texts]).astype(np.float64)
  for _ in range(30):
    question = " ".join(draw.choices(WORDS, k=draw.randint(1, 4)))
    words = dense_bm25.word_scores(texts, question, languages=("en",)).astype(np.float64)
    dense = embeddings_NxE @ encoder.question(question)
    fused = sum(w * (s - s.mean()) / (s.std() or 1) for w, s in ((0.6, dense), (0.4, words)))
    expected = dict(zip(by_id, fused, strict=True))
    for exact in (False, True):
      hits = base.search(question, k=10, exact=exact)
      assert [hit.score for hit in hits] == pytest.approx([expected[hit.id] for hit in hits], 1e-4)
    assert [hit.score for hit in hits] == pytest.approx(np.sort(fused)[:-11:-1], 1e-4)
