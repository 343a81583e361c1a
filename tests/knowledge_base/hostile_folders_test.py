"""Folders from elsewhere: whatever their files have, nothing but a line comes of it."""

import base64
import contextlib
import dataclasses
import functools
import json
import pathlib
import random
import re
import shutil
import zlib

import numpy as np
import pytest

from realm_jax.foundations import array_folder
from realm_jax.index.vectors import cells
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.learning.adapter import Adapter, Seen
from realm_jax.knowledge_base.learning.answerability import Answerability
from realm_jax.knowledge_base.learning.use_memory import Recall
from realm_jax.knowledge_base.store.commits import RANKINGS, Ranking
from realm_jax.knowledge_base.store.hits import Earned

PLANTS = [
  {"id": "moss", "title": "Moss", "text": "Moss grows in the shade.", "year": 1958},
  {"id": "fern", "title": "Fern", "text": "Ferns grow in the shade of trees.", "tags": ["wet"]},
  {"id": "oak", "text": "An oak is a tree.", "rare": False},
]
WORDS = ("moss", "fern", "alga", "lichen", "sedge", "heath")


@pytest.fixture
def base(tmp_path):
  return KnowledgeBase.create(tmp_path / "kb", PLANTS, language="en")


HOSTILE = [
  b"[" * 100_000,
  b"[]",
  b"null",
  b"{}",
  b"\xff",
  b"",
  *(
    json.dumps(change).encode()
    for change in (
      {"settings": {"reader": "../../mine"}},
      {"settings": {"encoder": "0" * 300}},
      {"settings": {"ranking": "best"}},
      {"settings": {"passage_words": 1e999}},
      {"settings": {"languages": [5]}},
      {"settings": None},
      {"segments": [{"name": "../../../mine", "num_documents": 1, "num_passages": 1}]},
      {"segments": [{"name": 5, "num_documents": 1, "num_passages": 1}]},
      {"segments": "x"},
      {"number": -1},
      {"number": 1.5},
      {"base": "x"},
      {"id": "../x"},
      {"history": [{"time": "x"}]},
      {"folders": 7},
      {"unknown": 1},
    )
  ),
]


@pytest.mark.parametrize("content", HOSTILE, ids=lambda content: content[:60].decode("latin-1"))
def test_a_hostile_commit_is_one_line_and_an_older_one_is_read(base, content):
  (newest,) = [pathlib.Path(base.path, "commits", base.commit.file)]
  fields = json.loads(newest.read_bytes())
  if content.startswith(b'{"'):
    content = json.dumps({**fields, **json.loads(content)}).encode()
  newest.write_bytes(content)
  assert KnowledgeBase(base.path).num_documents == 0, "of the commit before"
  for file in newest.parent.iterdir():
    file.write_bytes(content)
  with pytest.raises(ValueError, match=r"no commit of .* can be read"):
    KnowledgeBase(base.path)


def test_a_path_that_is_too_long_is_refused(tmp_path):
  with pytest.raises(OSError, match="too long"):
    KnowledgeBase.create(tmp_path / "/".join(["deep"] * 2000))
  assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("deleted", [[-1], [99], [1.5], ["x"], "x"])
def test_rows_that_a_segment_does_not_have_are_not_deleted(base, deleted):
  newest = pathlib.Path(base.path, "commits", base.commit.file)
  fields = json.loads(newest.read_bytes())
  fields["segments"][0]["deleted"] = deleted
  newest.write_text(json.dumps(fields))
  assert KnowledgeBase(base.path).num_documents == 0, "of the commit before"


def _with_header(content, change):
  size = int.from_bytes(content[:8], "little")
  header = json.loads(content[8 : 8 + size])
  changed = change(header)
  changed = json.dumps(header if changed is None else changed).encode()
  return len(changed).to_bytes(8, "little") + changed + content[8 + size :]


def _without(name):
  return lambda content: _with_header(content, lambda h: h["arrays"].pop(name) and None)


def _array(name, shape, dtype):
  record = {"shape": shape, "dtype": dtype}
  return lambda content: _with_header(content, lambda h: h["arrays"].update({name: record}))


HOSTILE_SEGMENTS = {
  "empty": lambda content: b"",
  "short": lambda content: content[:7],
  "cut": lambda content: content[:-64],
  "longer": lambda content: content + b"x",
  "long header": lambda content: (2**62).to_bytes(8, "little") + content[8:],
  "deep": lambda content: (
    _with_header(content, lambda h: 0)[:0] + (99_999).to_bytes(8, "little") + b"[" * 99_999
  ),
  "list": lambda content: _with_header(content, lambda h: [1]),
  "arrays": lambda content: _with_header(content, lambda h: h.update(arrays={})),
  "no arrays": lambda content: _with_header(content, lambda h: h.update(arrays=7)),
  "no record": lambda content: _with_header(content, lambda h: h["arrays"].update(hashes=None)),
  "no description": lambda content: _with_header(content, lambda h: h.update(description=None)),
  "description": lambda content: _with_header(content, lambda h: h.update(description=[])),
  "kind": lambda content: _with_header(content, lambda h: h.update(kind="adapter")),
  "missing": _without("hashes"),
  "huge": _array("hashes", [10**12], "uint64"),
  "negative": _array("hashes", [-1], "uint64"),
  "float": _array("hashes", [1.5], "uint64"),
  "objects": _array("hashes", [1], "object"),
  "structure": _array("hashes", [1], [["a", "<i4"]]),
  "texts": _array("hashes", [1], "<U4"),
  "no shape": _array("hashes", 3, "uint64"),
  "other numbers": _array("hashes", [1], "uint64"),
  "fewer ends": _array("texts.ends", [3], "int64"),
  "no integers": _array("texts.ends", [4], "float64"),
  "no rows": _array("first_passages", [0], "int64"),
}


@pytest.mark.parametrize("change", HOSTILE_SEGMENTS.values(), ids=HOSTILE_SEGMENTS)
def test_a_hostile_segment_is_one_line(base, change):
  (entry,) = base.commit.segments
  segment = pathlib.Path(base.path, "segments", entry.name)
  segment.write_bytes(change(segment.read_bytes()))
  with pytest.raises(ValueError, match=f"segment.*{entry.name}"):
    KnowledgeBase(base.path)


@pytest.mark.parametrize("seed", range(20))
def test_bits_that_are_wrong_in_a_header_end_in_one_line(base, seed):
  (entry,) = base.commit.segments
  segment, draw = pathlib.Path(base.path, "segments", entry.name), random.Random(seed)
  whole = segment.read_bytes()
  for _ in range(20):
    content = bytearray(whole)
    for _ in range(draw.randint(1, 4)):
      content[draw.randrange(8 + int.from_bytes(whole[:8], "little"))] ^= 1 << draw.randrange(8)
    segment.write_bytes(content)
    with contextlib.suppress(ValueError):
      KnowledgeBase(base.path).search("moss")


def embed(texts):
  return np.array([np.sum([_vector(word) for word in text.split()], axis=0) for text in texts])


def _vector(word):
  return np.random.default_rng(zlib.crc32(word.lower().strip(".").encode())).normal(size=8)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """A folder with a file of each kind."""
  path, draw = tmp_path_factory.mktemp("whole") / "kb", random.Random(0)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(cells, "FEWEST", 130)
    base = KnowledgeBase.create(path, language="en", encoder=embed, passage_words=8)
    texts = [". ".join(" ".join(draw.choices(WORDS, k=6)) for _ in range(8)) for _ in range(18)]
    base.add([{"id": f"d{n}", "text": text, "n": n % 5} for n, text in enumerate(texts)])
    base.update([{"id": f"d{n}", "text": texts[n], "tags": ["new"]} for n in range(2)])
  base.feedback("which moss", useful="d4")
  base.feedback("which fern", useful="d1", not_useful="d2")
  with base._folder.exclusively() as edit:
    encoder = edit.settings.encoder
    adapter = Adapter(0.1 * np.eye(8, dtype=np.float32), np.ones(8, np.float32)).write(str(path))
    zeros, ones = (0.0,) * 25, (1.0,) * 25
    known = Answerability(
      encoder=encoder, adapter=adapter, ranking="fused", means=zeros, deviations=ones,
      weights=(*ones, 0.0), by_best=(1.0, 1.0, 1.0), lows=(-9.0,) * 25, highs=(99.0,) * 25,
      num_passages=base.num_passages,
    )  # fmt: skip
    edit.settings = dataclasses.replace(
      edit.settings,
      adapter=adapter,
      answerability=known.write(str(path)),
      seen=Seen(["a question"]).write(str(path)),
    )
  assert base.search("moss").answerable is not None
  assert [bool(segment.cells) for segment in base._folder.newest().segments] == [True, False]
  return path


EXTREME = (0, 1, -1, 7, 255, 10**6, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), np.nan, np.inf)
NAMED = re.compile(
  r"segment \d{9}-|no document 'd\d+'|no question 'which moss'|no document has a field"
)
VALUES = (
  *(None, True, 0, -1, 5, 10**400, 1e308, float("nan"), float("inf")),
  *("", "zz", "\ud800", "../../mine", "x" * 5000, [], {}, [[]], {"a": 1}),
)


def damaged(content, draw):
  """Returns another value in the place of one that JSON has."""
  if isinstance(content, dict) and content and draw.random() < 0.8:
    key = draw.choice([*content])
    return {**content, key: damaged(content[key], draw)}
  if isinstance(content, list) and content and draw.random() < 0.8:
    place = draw.randrange(len(content))
    return [*content[:place], damaged(content[place], draw), *content[place + 1 :]]
  return draw.choice(VALUES)


def damaged_array(array, draw):
  """Returns an array of other values, another shape or another type."""
  match draw.choice(["value", "value", "fill", "type", "shape", "cut"]):
    case "type":
      kinds = {1: "?b", 2: "he", 4: "fI", 8: "dQF"}[array.itemsize]
      return np.ascontiguousarray(array).view(draw.choice(kinds))
    case "shape":
      return draw.choice([array[None], array.reshape(-1, 1), array.reshape(-1)[:1].reshape(())])
    case "cut":
      return array[: draw.choice([0, 1, len(array) - 1])]
    case kind:
      value, array = draw.choice(EXTREME), array.copy()
      if array.dtype.kind in "iu":
        least, most = np.iinfo(array.dtype).min, np.iinfo(array.dtype).max
        value = int(min(max(value, least), most)) if np.isfinite(value) else most
      array.reshape(-1)[draw.randrange(array.size) if kind == "value" else slice(None)] = value
      return array


def opened(file):
  """Returns the arrays of a file, their description, and their kind."""
  header = file.read_bytes()[8:]
  found, _ = json.JSONDecoder().raw_decode(header.decode(errors="replace"))
  kind = array_folder.Kind(kind=found["kind"], format=found["format"], remake="")
  return *array_folder.open_file(file, kind=kind, shapes={}), kind


def damage(file, draw):
  content = file.read_bytes()
  if file.suffix == ".json":
    content = json.dumps(damaged(json.loads(content), draw)).encode()
  elif file.suffix == ".jsonl":
    lines = content.splitlines(keepends=True)
    place = draw.randrange(len(lines))
    lines[place] = json.dumps(damaged(json.loads(lines[place]), draw)).encode() + b"\n"
    content = b"".join(lines)
  elif file.name == "seen":
    content = draw.choice([b"\xff", b"", b"x" * 100])
  else:
    arrays, description, kind = opened(file)
    if description is not None and draw.random() < 0.2:
      description = damaged(description, draw)
    else:
      name = draw.choice([name for name in arrays if arrays[name].size])
      arrays[name] = damaged_array(np.array(arrays[name]), draw)
    file.unlink()  # what is mapped stays
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(array_folder, "_check", lambda *_: None)  # which refuses what we do not read
      array_folder.write_file(file, arrays, kind=kind, description=description)
    return
  file.write_bytes(content)


def search(base, question, **options):
  hits = base.search(question, **options)
  assert np.isfinite([hit.score for hit in hits]).all()
  return hits


def acts(path, draw):
  """Yields what may be done with a folder, to be called before the next."""
  base = KnowledgeBase(path, encoder=embed)
  rankings: tuple[Ranking | None, ...] = (*RANKINGS, None)
  for by in rankings:
    question = " ".join(draw.choices(WORDS, k=2))
    yield functools.partial(search, base, question, k=draw.choice([1, 99]), by=by)
    yield functools.partial(search, base, question, where={"n": {"gte": 2}}, by=by)
  yield lambda: base.search("which moss", exact=True, explain=True)
  yield lambda: base.search("moss", where={"tags": "new"})
  yield lambda: (str(base), base.documents(), base.examples(), base.fields, base.history)
  yield base.past_questions
  yield lambda: base.feedback("which alga", useful="d5")
  yield lambda: base.update([{"id": "d5", "text": "moss"}])
  yield lambda: base.add([{"id": "new", "text": "moss fern"}])
  yield lambda: base.forget("which moss")
  yield lambda: base.delete("d7")
  yield lambda: base.compact(purge=draw.random() < 0.5)
  yield lambda: (base.documents(), base.search("moss"))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NaN
def test_whatever_values_files_have_a_line_names_the_folder(whole, tmp_path, seed):
  draw, path = random.Random(seed), tmp_path / "kb"
  for _ in range(15):
    shutil.copytree(whole, path)
    files = [file for file in path.rglob("*") if file.is_file() and file.name != "directory.lock"]
    damage(draw.choice(files), draw)
    todo = acts(path, draw)
    while True:
      try:
        next(todo)()
      except StopIteration:
        break
      except (ValueError, OSError) as error:
        assert str(path) in str(error) or NAMED.search(str(error)), error
    shutil.rmtree(path)


NOT_FINITE = {  # files, their arrays, and what says so, if it is not passed over
  "embeddings": ("segments/*", r"embeddings_NxE", "segment .* embeddings have NaN"),
  "of cells": ("segments/*", r"cells\.embeddings_NxE", "segment .* embeddings have NaN"),
  "centroids": ("segments/*", r"cells\.centroids_CxE", "segments/.* of cells have NaN"),
  "sums": ("segments/*", r"cells\.moments\.sum_E", "segments/.* of cells have NaN"),
  "products": ("segments/*", r"cells\.moments\.products_ExE", "segments/.* of cells have NaN"),
  "adapter": ("models/*/adapter", "weights|bias", "adapter cannot be read: .* have NaN"),
  "question": ("memory.jsonl", "", None),
}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("pattern, names, error", NOT_FINITE.values(), ids=NOT_FINITE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_vectors_that_are_not_finite_rank_nothing(
  whole, tmp_path, monkeypatch, value, pattern, names, error
):
  monkeypatch.setattr(Recall, "earned", lambda *_, **__: Earned(strength=1.0))
  path = tmp_path / "kb"
  shutil.copytree(whole, path)
  for file in path.glob(pattern):
    if file.name == "memory.jsonl":
      vector = np.zeros(8, "<f2")
      vector[3] = value
      lines = [{**json.loads(line)} for line in file.read_bytes().splitlines()]
      content = base64.b64encode(vector.tobytes()).decode()
      lines = [line | ({"embedding": content} if "embedding" in line else {}) for line in lines]
      assert any("embedding" in line for line in lines)
      file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
      arrays, description, kind = opened(file)
      arrays = {name: np.array(array) for name, array in arrays.items()}
      for name in filter(re.compile(names).fullmatch, arrays):
        arrays[name].reshape(-1)[3] = value
      file.unlink()
      array_folder.write_file(file, arrays, kind=kind, description=description)
  told = pytest.raises(ValueError, match=error) if error else contextlib.nullcontext()
  with told:
    search(KnowledgeBase(path, encoder=embed), "moss fern alga", k=99)
    search(KnowledgeBase(path, encoder=embed), "moss fern alga", k=99, where={"n": {"lt": 3}})
  if error and "embeddings have" in error:
    with told:
      KnowledgeBase(path, encoder=embed).compact()


def test_a_question_whose_embedding_is_not_finite_ranks_nothing(whole, monkeypatch):
  base = KnowledgeBase(whole, encoder=embed)
  monkeypatch.setattr(Adapter, "__call__", lambda adapter, question_E: question_E / 0)
  with np.errstate(divide="ignore"), pytest.raises(ValueError, match="question's embedding has"):
    base.search("moss")


def test_moments_that_are_too_large_are_not_those_of_the_embeddings(whole, tmp_path):
  path = tmp_path / "kb"
  shutil.copytree(whole, path)
  for file in path.glob("segments/*"):
    arrays, description, kind = opened(file)
    if "cells.moments.sum_E" in arrays:
      arrays["cells.moments.sum_E"] = np.array(arrays["cells.moments.sum_E"]) + 1e150
      arrays["cells.moments.products_ExE"] = np.array(arrays["cells.moments.products_ExE"]) * 1e150
      file.unlink()
      array_folder.write_file(file, arrays, kind=kind, description=description)
  with np.errstate(all="ignore"), pytest.raises(ValueError, match="sum_E is not that of the emb"):
    KnowledgeBase(path, encoder=embed).search("moss")
