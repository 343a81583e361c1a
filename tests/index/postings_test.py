import dataclasses
import os

import numpy as np
import pytest

from realm_jax.foundations import array_folder
from realm_jax.index.words import postings
from realm_jax.index.words.postings import Postings, open_or_build, prefixes_of

TEXTS = ["new york, new york", "", "a new city", "york is a city; new york too"]


def find(built, *terms):
  spellings = [term.encode() for term in terms]
  places = built.places(spellings, prefixes_of(spellings))
  return [[], []] if None in places else [array.tolist() for array in built.texts_of(*places)]


def opened_at(directory):
  return Postings.open(array_folder.Folder(directory, kind=postings.KIND, of=dict))


def test_terms_and_pairs_are_found_with_their_counts():
  built = Postings.build(TEXTS)
  assert find(built, "new") == [[0, 2, 3], [2, 1, 1]]
  assert find(built, "absent") == [[], []]
  assert find(built, "new", "york") == [[0, 3], [2, 1]]
  assert find(built, "york", "new") == [[0], [1]]
  assert find(built, "york", "york") == [[], []]
  # Texts do not run into each other.
  assert find(Postings.build(["a city", "new york"]), "citi", "new") == [[], []]


@pytest.mark.parametrize("bits", [10, 13])
def test_more_terms_and_texts_than_a_key_has_bits_for(bits, monkeypatch):
  draw = np.random.default_rng(0)
  texts = [" ".join(map(str, draw.integers(9, size=n % 7))) for n in range(40)]
  expected = vars(Postings.build(texts))
  monkeypatch.setattr(postings, "_KEY_BITS", bits)
  found = vars(Postings.build(texts))
  for name, array in expected.items():
    np.testing.assert_array_equal(found[name], array)
    assert getattr(found[name], "dtype", None) == getattr(array, "dtype", None)


def test_saved_postings_are_those_that_were_built(tmp_path):
  for texts in (TEXTS, [""], []):
    built = Postings.build(texts)
    built.save(str(tmp_path / "postings"))
    opened = opened_at(tmp_path / "postings")
    for name, array in vars(built).items():
      if isinstance(array, np.ndarray):
        np.testing.assert_array_equal(getattr(opened, name), array)
    assert len(opened) == len(texts)


def test_damaged_postings_are_refused(tmp_path):
  directory = tmp_path / "postings"
  Postings.build(TEXTS).save(str(directory))
  folder = array_folder.Folder(directory, kind=postings.KIND, of=dict)
  for name, array in {"starts": np.zeros(5, np.int64), "rows": np.zeros(1, np.int32)}.items():
    arrays = {**folder.mapped(postings.ARRAYS), name: array}
    array_folder.write(
      str(tmp_path / name), arrays, kind=postings.KIND, description={"languages": ["en"]}
    )
    with pytest.raises(ValueError, match=f"{tmp_path / name} is damaged.*; build the postings"):
      opened_at(tmp_path / name)
  (directory / "rows.bin").write_bytes(b"")
  with pytest.raises(ValueError, match=r"rows.bin is damaged"):
    opened_at(directory)
  assert len(open_or_build(str(directory), lambda: TEXTS, identity="")) == len(TEXTS)


def test_postings_are_built_once_for_a_corpus(tmp_path, monkeypatch):
  directory = str(tmp_path / "bm25")
  given = {"identity": "first", "languages": ["en"]}
  open_or_build(directory, lambda: TEXTS, **given)
  written = os.stat(directory).st_ino
  assert len(open_or_build(directory, list, **given)) == len(TEXTS)
  assert os.stat(directory).st_ino == written
  for changed in ({"identity": "second"}, {"languages": ["de"]}):
    assert len(open_or_build(directory, lambda: TEXTS[:1], **{**given, **changed})) == 1
    open_or_build(directory, lambda: TEXTS, **given)
  monkeypatch.setattr(postings, "KIND", dataclasses.replace(postings.KIND, format=0))
  assert len(open_or_build(directory, lambda: TEXTS[:2], **given)) == 2


def test_what_a_user_keeps_beside_postings_stays(tmp_path):
  Postings.build(TEXTS).save(str(tmp_path))
  (tmp_path / "thesis.txt").touch()
  assert len(open_or_build(str(tmp_path), lambda: TEXTS[:2], identity="other")) == 2
  assert (tmp_path / "thesis.txt").exists()
