import numpy as np
import pytest

from realm_jax.datatypes import MISSING_PASSAGE_ID
from realm_jax.index.bm25 import Bm25Config, Bm25Retriever

pytest.importorskip("bm25s", reason="the extra bm25 is not installed")

TEXTS = ["the cat sat", "dogs bark at the cat", "a dog barked loudly", "rivers flow", "cat cat cat"]


def test_rare_words_and_short_passages_come_first():
  retriever = Bm25Retriever(TEXTS)
  found = retriever.retrieve(["Which rivers?", "who barks?", "cat"], k=3)
  assert found.ids_BxK.dtype == np.int32
  assert found.ids_BxK[0, 0] == 3
  assert set(found.ids_BxK[1, :2].tolist()) == {1, 2}
  assert found.ids_BxK[2].tolist() == [4, 0, 1]
  assert (found.scores_BxK[:, :-1] >= found.scores_BxK[:, 1:]).all()
  assert retriever.num_passages == 5


def test_passages_without_a_word_of_the_question_are_not_found():
  found = Bm25Retriever(TEXTS).retrieve(["cat", "xyz", ""], k=7)
  assert found.ids_BxK.shape == (3, 7)
  assert (found.ids_BxK >= 0).sum(axis=1).tolist() == [3, 0, 0]
  assert (found.ids_BxK[:, 3:] == MISSING_PASSAGE_ID).all()
  assert np.isneginf(found.scores_BxK[:, 3:]).all()


def test_of_equal_scores_the_lowest_ids_are_found_however_few_are_asked_for():
  retriever = Bm25Retriever(["rivers flow"] * 40 + ["a cat"] * 40)
  for k in (1, 3, 17, 79):
    ids = retriever.retrieve(["cat"], k=k).ids_BxK[0]
    assert ids[:40].tolist() == list(range(40, 80))[:k]


def test_a_mask_is_no_word():
  found = Bm25Retriever([*TEXTS, "a mask"]).retrieve(["who [MASK] loudly?"], k=2)
  assert found.ids_BxK[0].tolist() == [2, MISSING_PASSAGE_ID]


def test_scores_are_those_of_the_library():
  import bm25s
  import Stemmer

  stem = Stemmer.Stemmer("english")
  retriever = Bm25Retriever(TEXTS, config=Bm25Config(k1=0.9, b=0.4))
  index = bm25s.BM25(k1=0.9, b=0.4)
  index.index(bm25s.tokenize(TEXTS, stemmer=stem, show_progress=False), show_progress=False)
  for question in ("cat", "dogs cat cat", "loudly barked river dog"):
    found = retriever.retrieve([question], k=5)
    (words,) = bm25s.tokenize([question], stemmer=stem, return_ids=False, show_progress=False)
    scores_N = index.get_scores(words)
    np.testing.assert_allclose(
      found.scores_BxK[found.ids_BxK >= 0], np.sort(scores_N[scores_N > 0])[::-1], rtol=1e-6
    )


def test_a_written_text_scores_as_if_it_were_indexed():
  retriever = Bm25Retriever(TEXTS)
  question = ["a cat that barks at dogs"]
  before = retriever.retrieve(question, k=5)
  after = retriever.retrieve(question, k=5, hidden=[1, 4], written={1: TEXTS[1], 9: "flow"})
  score_of = dict(zip(before.ids_BxK[0].tolist(), before.scores_BxK[0].tolist(), strict=True))
  ids = [i for i in before.ids_BxK[0].tolist() if i not in (4, MISSING_PASSAGE_ID)]
  assert after.ids_BxK[0, : len(ids)].tolist() == ids
  np.testing.assert_allclose(after.scores_BxK[0, : len(ids)], [score_of[i] for i in ids], rtol=1e-6)
  assert 9 not in after.ids_BxK


def test_an_index_is_built_once_for_a_corpus(tmp_path):
  directory = str(tmp_path / "bm25")

  def gone():
    raise AssertionError("built again")

  built = Bm25Retriever.open(directory, lambda: TEXTS, identity="first")
  opened = Bm25Retriever.open(directory, gone, identity="first")
  ask = {"questions": ["a cat that barks", "rivers"], "k": 4, "written": {7: "a river flows"}}
  for mine, kept in zip(built.retrieve(**ask), opened.retrieve(**ask), strict=True):
    np.testing.assert_array_equal(mine, kept)
  with pytest.raises(AssertionError, match="built again"):
    Bm25Retriever.open(directory, gone, identity="second")
  with pytest.raises(AssertionError, match="built again"):
    Bm25Retriever.open(directory, gone, identity="first", config=Bm25Config(b=0.4))


def test_without_room_for_the_index_it_is_made_in_memory(tmp_path, caplog):
  (tmp_path / "file").write_text("")
  retriever = Bm25Retriever.open(str(tmp_path / "file" / "bm25"), lambda: TEXTS, identity="x")
  assert retriever.num_passages == 5
  assert "cannot save the BM25 index" in caplog.text


def test_an_empty_corpus_is_refused():
  with pytest.raises(ValueError, match="at least one passage"):
    Bm25Retriever([])


def test_the_languages_decide_what_a_word_is(tmp_path):
  texts = ["黑豹队的防守只丢了308分", "野马队击败了钢人队", "超级碗在圣克拉拉举行"]
  ask = {"questions": ["黑豹队丢了多少分？", "超级碗在哪里举行？"], "k": 1}
  found = Bm25Retriever(texts, languages=["zh"]).retrieve(**ask)
  assert found.ids_BxK[:, 0].tolist() == [0, 2]
  directory = str(tmp_path / "bm25")
  english = Bm25Retriever.open(directory, lambda: texts, identity="same")
  assert (english.retrieve(**ask).ids_BxK == MISSING_PASSAGE_ID).all()
  for _ in range(2):  # built, and opened
    chinese = Bm25Retriever.open(directory, lambda: texts, identity="same", languages=["zh"])
    assert chinese.retrieve(**ask).ids_BxK[:, 0].tolist() == [0, 2]


def test_frequent_words_of_one_language_stay_frequent_among_others():
  german = [f"was ist das und der {word} ist hier" for word in ("Hund", "Fuchs", "Igel", "Dachs")]
  german.append("Dachs und Igel schlafen")
  chinese = [f"这座城市建于{i}世纪，人们都来参观。" for i in range(60)]
  question = ["Was ist der Dachs und das?"]
  alone = Bm25Retriever(german, languages=["de"]).retrieve(question, k=5)
  mixed = Bm25Retriever([*german, *chinese], languages=["de", "zh"]).retrieve(question, k=5)
  assert mixed.ids_BxK.tolist() == alone.ids_BxK.tolist()
  weights = mixed.scores_BxK / mixed.scores_BxK.max(), alone.scores_BxK / alone.scores_BxK.max()
  np.testing.assert_allclose(*weights, atol=0.1)
