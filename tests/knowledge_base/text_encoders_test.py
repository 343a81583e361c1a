"""Knowledge bases whose encoder is an object."""

import json
import os
import pickle
import threading
import time

import ml_dtypes
import numpy as np
import pandas
import pytest

from realm_jax import main
from realm_jax.index.fusion import fuse_scores
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.store import edit

SEA = [
  {"id": "ship", "title": "Ship", "text": "A vessel sails. It is of wood.", "year": 1905},
  {"id": "moss", "text": "Moss grows in the shade. It is green.", "year": 1958},
  {"id": "oak", "title": "Oak", "text": "", "year": 1960},
]
SETTINGS = {"language": "en", "passage_words": 6}
WIDTH = 26


def letters(texts):
  """Embeds texts by how often they have each letter."""
  return np.array([[text.lower().count(chr(97 + i)) for i in range(WIDTH)] for text in texts])


class Encoder:
  """Has what sentence-transformers' models have."""

  similarity_fn_name = "cosine"

  def __init__(self):
    self.documents = []

  def encode(self, texts):
    raise AssertionError("encode_query and encode_document come first")

  def encode_query(self, texts):
    assert isinstance(texts, list)
    return letters([f"query: {text}" for text in texts])

  def encode_document(self, texts):
    self.documents += texts
    return letters(texts)


class Encodes:
  """Has `encode` alone, whose vectors are lists."""

  def encode(self, texts):
    return letters(texts).tolist()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
  """The folder of a base whose encoder is `letters`, to read only."""
  path = tmp_path_factory.mktemp("plain") / "kb"
  return KnowledgeBase.create(path, SEA, encoder=letters, **SETTINGS).path


class DotProducts(Encodes):
  similarity_fn_name = "dot"


def by_id(hits):
  return {(hit.id, hit.passage): hit.score for hit in hits}


def test_scores_are_cosines_of_its_vectors(tmp_path):
  encoder = Encoder()
  base = KnowledgeBase.create(tmp_path / "kb", SEA, encoder=encoder, **SETTINGS)
  passages = ["Ship\nA vessel sails.", "Ship\nIt is of wood.", "Moss grows in the shade."]
  passages += ["It is green.", "Oak"]
  assert set(passages) <= set(encoder.documents)
  question_E = letters(["query: is the tree of wood"])[0]
  scores = letters(passages) @ question_E
  scores = scores / np.linalg.norm(letters(passages), axis=1) / np.linalg.norm(question_E)
  found = by_id(base.search("is the tree of wood", k=9, by="encoder"))
  places = [("ship", 0), ("ship", 1), ("moss", 0), ("moss", 1), ("oak", 0)]
  np.testing.assert_allclose([found[place] for place in places], scores, rtol=2e-3)
  words = by_id(base.search("is the tree of wood", k=9, by="words"))
  fused = by_id(base.search("is the tree of wood", k=9))
  expected = fuse_scores(scores, np.array([words.get(place, 0) for place in places]))
  np.testing.assert_allclose([fused[place] for place in places], expected, atol=1e-2)


def test_those_of_dot_products_keep_their_length(tmp_path):
  base = KnowledgeBase.create(tmp_path / "kb", SEA[2:], encoder=DotProducts(), **SETTINGS)
  (hit,) = base.search("oak oak", by="encoder")
  assert hit.score == 6
  base = KnowledgeBase.create(tmp_path / "other", SEA[2:], encoder=Encodes(), **SETTINGS)
  assert base.search("oak oak", by="encoder")[0].score == pytest.approx(1, abs=1e-3)


def test_without_the_object_words_are_searched_and_documents_deleted(tmp_path, capsys):
  KnowledgeBase.create(tmp_path / "kb", SEA, encoder=letters, **SETTINGS)
  base = KnowledgeBase(tmp_path / "kb")
  with pytest.raises(ValueError, match=r'encoder=\.\.\.\), or search by words alone: by="words"'):
    base.search("moss")
  assert [hit.id for hit in base.search("moss", by="words")] == ["moss"]
  for refused in (
    lambda: base.add([{"id": "elm", "text": "An elm."}]),
    base.train,
    lambda: base.search("moss", by="fused"),
  ):
    with pytest.raises(ValueError, match="encoder object"):
      refused()
  assert base.delete("oak").deleted == 1 and len(base) == 2
  assert main.main(["kb", "search", str(tmp_path / "kb"), "moss"]) == 1
  assert "--by=words" in capsys.readouterr().err
  assert main.main(["kb", "search", str(tmp_path / "kb"), "moss", "--by=words"]) == 0


@pytest.mark.parametrize(
  ("other", "message"),
  [
    (lambda texts: letters(texts)[:, 1:], "25 numbers, not 26"),
    (lambda texts: letters(texts)[:, ::-1], r"1\.\d\d of their length away"),
    (Encoder(), r"of their length away"),
    (object(), "cannot embed"),
  ],
)
def test_another_encoder_is_refused(plain, other, message):
  with pytest.raises(ValueError, match=message) as refused:
    KnowledgeBase(plain, encoder=other)
  assert "\n" not in str(refused.value)


def test_an_encoder_is_refused_where_there_is_none(tmp_path):
  KnowledgeBase.create(tmp_path / "kb", SEA, **SETTINGS)
  with pytest.raises(ValueError, match="searched by words; open it without"):
    KnowledgeBase(tmp_path / "kb", encoder=letters)
  with pytest.raises(ValueError, match="ranks by words$"):
    KnowledgeBase(tmp_path / "kb").search("moss", by="fused")


@pytest.mark.parametrize(
  ("returned", "message"),
  [
    (lambda texts: letters(texts)[0], r"an array \[26\] for 3 texts"),
    (lambda texts: letters(texts)[:1], r"an array \[1, 26\] for 3 texts"),
    (lambda texts: letters(texts)[:, :0], r"an array \[3, 0\] for 3 texts; it has to be \[3, E\]"),
    (lambda texts: letters(texts) / 0.0, "NaN, infinity or .* for 'Moss"),
    (lambda texts: ["a"] * len(texts), "returned list for 3 texts, which is no array"),
    (lambda texts: None, "returned NoneType"),
    (lambda texts: [[1.0]] + [[1.0, 2.0]] * (len(texts) - 1), "no array of numbers"),
    (lambda texts: [["1", "2"]] * len(texts), "no array of numbers"),
    (lambda texts: {"embeddings": letters(texts)}, "returned dict"),
    (lambda texts: "abc", "returned str"),
    (lambda texts: letters(texts) + 1j, "complex128"),
    (lambda texts: np.squeeze(letters(texts)), r"an array \[26\] for 1 texts"),
    (lambda texts: letters(texts)[:, : 20 + len(texts)], "vectors of 23 and of 21 numbers"),
  ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_what_is_no_vector_for_each_text_is_refused_and_nothing_is_left(
  tmp_path, returned, message
):
  with pytest.raises(ValueError, match=message):
    KnowledgeBase.create(tmp_path / "kb", SEA, encoder=returned, **SETTINGS)
  assert len(KnowledgeBase.create(tmp_path / "kb", SEA, **SETTINGS)) == 3


@pytest.mark.parametrize(
  "form",
  [
    lambda vectors: vectors.astype(np.float16),
    lambda vectors: vectors.astype(ml_dtypes.bfloat16),
    lambda vectors: vectors * 1e-30,
    lambda vectors: vectors * 1e-300,
    lambda vectors: vectors * 1e300,
    lambda vectors: vectors.astype(np.int16),
    lambda vectors: np.asfortranarray(vectors),
    lambda vectors: [*vectors],
    lambda vectors: vectors.tolist(),
    lambda vectors: (tuple(vector) for vector in vectors),
    lambda vectors: [Tensor(vector) for vector in vectors],
    lambda vectors: Tensor(vectors),
    lambda vectors: vectors.astype(np.float16) / np.float16(7),
    lambda vectors: pandas.DataFrame(vectors),
    lambda vectors: [pandas.Series(vector) for vector in vectors],
  ],
)
def test_vectors_of_any_form_and_size_are_the_same(tmp_path, plain, form):
  base = KnowledgeBase.create(tmp_path / "kb", SEA, encoder=lambda t: form(letters(t)), **SETTINGS)
  found = KnowledgeBase(base.path, encoder=letters).search("zzz", k=9)
  expected = pickle.loads(pickle.dumps(KnowledgeBase(plain, encoder=letters))).search("zzz", k=9)
  assert by_id(found) == pytest.approx(by_id(expected), abs=1e-2) and len(found) == 5


def test_an_encoder_that_reads_less_of_long_texts_is_another(tmp_path):
  def first_words(most):
    return lambda texts: letters([" ".join(text.split()[:most]) for text in texts])

  base = KnowledgeBase.create(tmp_path / "kb", SEA, encoder=first_words(256), **SETTINGS)
  for most in (16, 64, 128, 512):
    with pytest.raises(ValueError, match="of their length away"):
      KnowledgeBase(base.path, encoder=first_words(most))


def test_vectors_that_change_their_width_later_are_refused(tmp_path):
  width = WIDTH
  encode = lambda texts: letters(texts)[:, :width]  # noqa: E731
  base = KnowledgeBase.create(tmp_path / "kb", SEA, encoder=encode, **SETTINGS)
  width = 5
  with pytest.raises(ValueError, match=r"\[1, 5\] for 1 texts; it has to be \[1, 26\]"):
    base.add([{"id": "elm", "text": "An elm."}])
  assert len(base) == 3


class Tensor:
  """Has what a tensor of PyTorch with a gradient has, which is no array before `detach`."""

  def __init__(self, values, *, detached=False):
    self.values, self.detached = values, detached

  def detach(self):
    return Tensor(self.values, detached=True)

  def cpu(self):
    return self

  float = cpu

  def __len__(self):
    return len(self.values)

  def __array__(self, dtype=None, copy=None):
    if not self.detached:
      raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
    return np.asarray(self.values, dtype)


def test_it_is_called_by_one_thread_at_a_time_and_in_batches(tmp_path):
  inside, sizes = threading.Semaphore(), []

  def encode(texts):
    assert inside.acquire(blocking=False)
    sizes.append(len(texts))
    time.sleep(0.001)
    inside.release()
    return letters(texts)

  documents = [{"id": str(n), "text": f"Moss {n}."} for n in range(200)]
  base = KnowledgeBase.create(tmp_path / "kb", documents, encoder=encode, **SETTINGS)
  assert max(sizes) <= 64 and sum(sizes) <= 200 + 8
  failed = []

  def search():
    try:
      base.search("moss")
    except BaseException as error:
      failed.append(error)

  threads = [threading.Thread(target=search) for _ in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not failed


def test_rankings_are_compared_and_chosen(tmp_path):
  documents = [{"id": c, "title": 3 * c, "text": f"{9 * c}. {5 * c}."} for c in "abcdefghijkl"]
  base = KnowledgeBase.create(tmp_path / "kb", documents, encoder=letters, language="en")
  questions = tmp_path / "questions.jsonl"
  asked = [{"question": 2 * c, "answer": 9 * c} for c in "abcdefghijkl"]
  questions.write_text("\n".join(map(json.dumps, asked)))
  assert base.evaluate(questions).figures["encoder"]["recall@1"] == 1
  assert base.evaluate(questions).figures["words"]["recall@1"] == 0
  assert base.train().chosen in ("encoder", "fused")


@pytest.mark.parametrize("same", [True, False])
def test_an_interrupted_creation_goes_on_if_the_encoder_is_the_same(tmp_path, monkeypatch, same):
  monkeypatch.setattr(edit, "_PASSAGES_AT_ONCE", 8)
  documents = [{"id": str(n), "text": f"Moss {n} grows."} for n in range(40)]
  embedded = []

  def encoder(added, *, most):
    def encode(texts):
      embedded.extend(texts)
      if len(embedded) > most:
        raise KeyboardInterrupt
      return added + letters(texts)

    return encode

  with pytest.raises(KeyboardInterrupt):
    KnowledgeBase.create(tmp_path / "kb", documents, encoder=encoder(1, most=32), language="en")
  staged = tmp_path / "kb" / "staged"
  KnowledgeBase(tmp_path / "kb", encoder=encoder(1, most=999)).delete([])
  (half := min(staged.iterdir())).write_bytes(half.read_bytes()[:9])  # of a machine that failed
  embedded.clear()
  again = encoder(1.00001 if same else 2, most=999)  # as on another device
  base = KnowledgeBase.create(tmp_path / "kb", documents, encoder=again, language="en")
  assert len(base) == 40 and not os.listdir(staged)
  new = [text for text in embedded if "grows." in text]
  assert len(new) == (24 if same else 40), "whole parts of eight are kept"
