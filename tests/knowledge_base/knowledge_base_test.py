"""What a knowledge base keeps, finds and refuses."""

import contextlib
import datetime
import doctest
import functools
import json
import os
import pathlib
import pickle
import shutil
import threading

import numpy as np
import pytest

from realm_jax import main
from realm_jax.corpus import limits
from realm_jax.corpus.documents import Document
from realm_jax.corpus.formats.outline import Mark
from realm_jax.index.words import postings
from realm_jax.knowledge_base import folder, knowledge_base
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.learning import memory_file
from realm_jax.knowledge_base.store.edit import Edit
from realm_jax.knowledge_base.store.segment import content_digests
from realm_jax.text import languages

PLANTS = [
  {
    "id": "moss",
    "title": "Moss",
    "text": "Moss grows in the shade.",
    "year": 1958,
    "tags": ["green", "wet"],
  },
  {"id": "fern", "title": "Fern", "text": "Ferns grow in the shade of trees.", "year": 1960},
  {"id": "oak", "text": "An oak is a tree.", "year": 1960.5, "kind": "tree", "rare": False},
]


@pytest.fixture
def base(tmp_path):
  return KnowledgeBase.create(tmp_path / "kb", PLANTS, language="en")


def ids(hits):
  return [hit.id for hit in hits]


# Of which the last three are added later.
SPARSE = [
  {"id": "one", "text": "Moss.", "year": 1958, "tags": ["wet", "green"], "old": True},
  {"id": "two", "text": "Moss.", "year": 1, "tags": ["dry"], "old": False},
  {"id": "no", "text": "Moss."},
  {"id": "null", "text": "Moss.", "year": None, "tags": None, "old": None},
  {"id": "empty", "text": "Moss.", "year": "", "tags": [], "old": {}},
  {"id": "odd", "text": "Moss.", "year": "1958", "tags": [None], "old": {"is": True}},
]
UTC, TOKYO = datetime.UTC, datetime.timezone(datetime.timedelta(hours=9))
TIMES = [
  ("noon", datetime.datetime(2024, 5, 1, 12, tzinfo=UTC)),
  ("eleven", datetime.datetime(2024, 5, 1, 20, tzinfo=TOKYO)),
  ("zulu", "2024-05-01T12:00:00Z"),
  ("space", "2024-05-01 12:00:00.500"),
  ("nanoseconds", "2024-05-01T12:00:00.500000001+00:00"),
  ("day", datetime.date(2024, 5, 2)),
  ("text", "noon of 2024-05-01"),
  ("no_day", "2024-02-31"),
  ("true", True),
]
AT = datetime.datetime


@pytest.fixture(scope="module")
def filtered(tmp_path_factory):
  path = tmp_path_factory.mktemp("filtered")
  times = [{"id": id, "text": "moss", "t": time} for id, time in TIMES]
  given = {"plants": PLANTS, "sparse": SPARSE[:3], "times": times}
  bases = {n: KnowledgeBase.create(path / n, texts, language="en") for n, texts in given.items()}
  bases["sparse"].add(SPARSE[3:])
  return bases


@pytest.mark.parametrize(
  ("documents", "where", "expected"),
  [
    ("plants", {"year": 1958}, "moss"),
    ("plants", {"year": "1958"}, ""),
    ("plants", {"year": [1958, 1960]}, "moss fern"),
    ("plants", {"year": {"gte": 1958, "lt": 1960}}, "moss"),
    ("plants", {"year": {"gt": 1958}}, "fern oak"),
    ("plants", {"year": {"lte": 1960}, "tags": "wet"}, "moss"),
    ("plants", {"kind": {"gte": "t"}}, "oak"),
    ("plants", {"kind": {"gte": 1}}, ""),
    ("plants", {"rare": False}, "oak"),
    ("plants", {"rare": 0}, ""),
    ("plants", {"tags": {"gte": "v", "lt": "x"}}, "moss"),
    ("plants", {"tags": {"gt": "green", "lt": "wet"}}, ""),  # no value is between
    ("sparse", {"year": {"ne": 1958}}, "two odd no null empty"),
    ("sparse", {"year": {"ne": True}}, "one two odd no null empty"),
    ("sparse", {"year": {"nin": [1958, 1]}}, "odd no null empty"),
    ("sparse", {"year": {"nin": []}}, "one two odd no null empty"),
    ("sparse", {"year": {"exists": True}}, "one two odd"),
    ("sparse", {"year": {"exists": False}}, "no null empty"),
    ("sparse", {"year": None}, "no null empty"),
    ("sparse", {"year": [None, 1]}, "two no null empty"),
    ("sparse", {"year": ""}, "no null empty"),
    ("sparse", {"year": {"ne": None}}, "one two odd"),
    ("sparse", {"year": {"nin": [None, 1]}}, "one odd"),
    ("sparse", {"year": {"gte": 0, "ne": 1}}, "one"),
    ("sparse", {"year": {"gte": 0, "exists": False}}, ""),
    ("sparse", {"year": {"ne": 1}, "tags": {"ne": "wet"}}, "odd no null empty"),
    ("sparse", {"tags": {"ne": "green"}}, "two odd no null empty"),
    ("sparse", {"tags": {"nin": ("wet",), "ne": "dry"}}, "odd no null empty"),
    ("sparse", {"tags": {"exists": True}}, "one two"),
    ("sparse", {"tags": {"exists": False}}, "odd no null empty"),
    ("sparse", {"old": {"exists": True}}, "one two odd"),
    ("sparse", {"old": {"ne": True}}, "two odd no null empty"),
    ("sparse", {"old": {"ne": 1}}, "one two odd no null empty"),
    ("sparse", {"archived": {"ne": True}}, "one two odd no null empty"),
    ("sparse", {"archived": {"exists": False}}, "one two odd no null empty"),
    ("times", {"t": {"lt": AT(2024, 5, 1, 11, 30, tzinfo=UTC)}}, "eleven no_day"),
    ("times", {"t": "2024-05-01T21:00+09:00"}, "noon zulu"),
    (
      "times",
      {"t": {"ne": "2024-05-01T12Z", "lt": "2024-05-01 12:00:00.5Z", "gt": "2024-03"}},
      "eleven",
    ),
    ("times", {"t": "2024-05-01T12:00:00.5"}, "space"),
    ("times", {"t": {"gt": "2024-05-01T12:00:00.5", "lt": "2024-05-01T23:59"}}, "nanoseconds"),
    ("times", {"t": {"gte": AT(2024, 5, 2, tzinfo=UTC), "lt": "3"}}, "day"),
    ("times", {"t": AT(2024, 5, 2)}, "day"),
    ("times", {"t": {"lte": datetime.date(2024, 5, 2), "gt": "2024-05-01T23"}}, "day"),
    ("times", {"t": {"gte": "n", "lt": "o"}}, "text"),
    ("times", {"t": "2024-02-31"}, "no_day"),
    ("times", {"t": {"gte": 1}}, ""),
    ("times", {"t": {"gte": True}}, "true"),
  ],
)
def test_conditions_select_documents(filtered, documents, where, expected):
  """Times are compared as moments, and booleans are no numbers."""
  found = filtered[documents].search("moss fern oak", k=20, where=where)
  assert {*ids(found)} == {*expected.split()}


def test_conditions_on_unknown_names_and_on_many_fields_take_no_memory(tmp_path):
  documents = [{"id": str(n), "text": "moss", f"f{n}": n} for n in range(2000)]
  base = KnowledgeBase.create(tmp_path / "kb", documents, language="en")
  assert sum(file.stat().st_size for file in (tmp_path / "kb").rglob("*")) < 500_000
  columns = base._folder.newest()._columns
  for n in range(0, 2000, 50):
    assert len(base.search("moss", where={f"g{n}": {"ne": 1}, f"g{n + 1}": None})) == 5
    assert ids(base.search("moss", where={f"f{n}": {"gte": 0}})) == [str(n)]
    assert len(columns) <= 16
  base.delete(map(str, range(1999)))
  base.compact()
  assert base.fields == {"f1999": 1999} and base.document("1999").fields == {"f1999": 1999}


def test_a_blank_question_finds_nothing_and_asks_no_encoder(tmp_path):
  def encode(texts):
    assert all(text.strip() for text in texts)
    return [[len(text), text.count("o"), 1.0] for text in texts]

  base = KnowledgeBase.create(tmp_path / "kb", PLANTS, language="en", encoder=encode)
  for blank in ("", " \n", "\u200b\u3000", "\x00"):
    assert not base.search(blank) and not base.answer(blank, generate=lambda *_: "1").text
    with pytest.raises(ValueError, match="says nothing"):
      base.feedback(blank, useful="moss")
    with pytest.raises(ValueError, match="'yaer'"):
      base.search(blank, where={"yaer": 1958})
  assert base.search("?", by="encoder")
  assert KnowledgeBase.create(tmp_path / "empty").search("moss").spans("moss") == []


def test_a_selective_condition_still_finds_k_passages(tmp_path):
  documents = [{"id": str(n), "text": f"moss {'moss ' * (n % 7)}", "n": n} for n in range(300)]
  base = KnowledgeBase.create(tmp_path / "kb", documents, language="en")
  assert len(base.search("moss", k=4, where={"n": {"gte": 296}})) == 4


def nested(depth):
  return functools.reduce(lambda inner, _: [inner], range(depth), [])


@pytest.mark.parametrize(
  ("call", "named"),
  [
    (lambda base: base.add([{**PLANTS[0], "text": "Another."}]), "'moss'"),
    (lambda base: base.add([PLANTS[0], PLANTS[0]]), "'moss'"),
    (lambda base: base.add([{"text": "Nameless."}]), "Nameless"),
    (lambda base: base.add([{"id": "a", "text": 3}]), "3"),
    (lambda base: base.add([{"id": "a", "text": "A.", "size": {1}}]), "'size'"),
    (lambda base: base.delete(["moss", "elm"]), "'elm'"),
    (lambda base: base.search("moss", where={"yaer": 1958}), "'yaer'"),
    (lambda base: base.search("moss", where={"year": {"ge": 1958}}), "gte"),
    (lambda base: base.search("moss", where={"yaer": {"exists": True}}), "'yaer'"),
    (lambda base: base.search("moss", where={"year": {"exists": "yes"}}), "exists='yes'"),
    (lambda base: base.search("moss", where={"year": {"exists": None}}), "exists=None"),
    (lambda base: base.search("moss", where={"year": {"ne": [[1958]]}}), "1958"),
    (lambda base: base.search("moss", where="year"), "where='year'"),
    (lambda base: base.search("moss", where={"year": {"gte": {1}}}), "JSON cannot hold"),
    (
      lambda base: base.search("moss", where={"year": {"gte": None}}),
      "year has gte=None, which no",
    ),
    (lambda base: base.search("moss", where={"year": {"lt": 2, "gt": [1]}}), r"gt=\[1\], which no"),
    (lambda base: base.search("moss", where={"year": {"lte": float("nan")}}), "lte=None, which no"),
    (lambda base: base.search("moss", where={7: 1958}), "give a mapping of fields"),
    (lambda base: base.search("moss", where={"year": [[1958]]}), "1958"),
    (lambda base: base.search("moss", k=0), "k=0"),
    (lambda base: base.add(None), "None is no text"),
    (lambda base: base.add(5), "5 is no text"),
    (lambda base: base.add("http://127.0.0.1/x.txt"), "not downloaded"),
    (lambda base: base.delete(None), "'None'"),
    (lambda base: base.search(None), "question=None"),
    (lambda base: base.search("cut \ud83d"), r"'cut \\ud83d' has half of a surrogate pair"),
    (lambda base: base.add([{"id": "", "text": "Nameless."}]), "Nameless"),
    (lambda base: KnowledgeBase.create(base.path, PLANTS), "already"),
    (lambda base: base.add([("x", "text")]), "give a mapping"),
    (lambda base: base.add([{"id": "a", "text": "Moss."}, "zz"]), "give a mapping"),
    (lambda base: base.add([base.path, {"id": "a", "text": "Moss."}]), "is no path, but comes"),
    (lambda base: base.add([{"id": "a", "text": "A.", "x": nested(2_000)}]), "nested too deep"),
    (lambda base: base.documents(first=-3), "first=-3"),
  ],
)
def test_a_mistake_is_named_and_changes_nothing(filtered, call, named):
  base = filtered["plants"]
  with pytest.raises(ValueError, match=named):
    call(base)
  again = KnowledgeBase(base.path)
  assert ids(again.search("moss")) == ["moss"] and len(again) == 3


def test_adding_again_touches_only_what_changed(base):
  number = base.commit.number
  changes = base.add([*PLANTS, {"id": "elm", "text": "An elm."}])
  assert (changes.added, changes.unchanged) == (1, 3)
  assert base.add(PLANTS).unchanged == 3
  assert base.commit.number == number + 1
  changes = base.sync([PLANTS[0], {**PLANTS[1], "year": 1961}])
  assert (changes.updated, changes.unchanged, changes.deleted) == (1, 1, 2)
  assert ids(base.search("fern", where={"year": 1961})) == ["fern"] and len(base) == 2


def test_one_record_needs_no_list_and_values_are_those_of_json(base):
  day, number, nan = datetime.date(2026, 1, 2), np.int64(3), float("nan")
  base.add({"id": 7, "title": nan, "text": "An elm.", "year": nan, "day": day, "n": number})
  for where in ({"day": {"gte": "2026"}}, {"day": day, "n": {"gte": number}}):
    (elm,) = base.search("elm", where=where)
    assert (elm.id, elm.title, elm.fields) == ("7", "", {"day": "2026-01-02", "n": 3})
  assert 7 in base and base.document(7).text == "An elm." and len(base) == 4
  base.delete(7)
  assert 7 not in base


@pytest.mark.parametrize(
  ("ids", "left"),
  [([1, "1"], ["2"]), (np.int64(2), ["1"]), (np.array([2, 1]), []), (iter("12"), []), (2, ["1"])],
)
def test_ids_of_any_type_are_deleted_once(tmp_path, ids, left):
  texts = [{"id": np.int32(1), "text": "A wing."}, {"id": 2, "text": "Wings."}]
  base = KnowledgeBase.create(tmp_path / "kb", texts)
  assert base.delete(ids).deleted == base.history[0].deleted == 2 - len(left)
  assert [one.id for one in base.documents()] == left


@pytest.mark.parametrize(
  "library", ["pandas", pytest.param("polars", marks=pytest.mark.interop), "pyarrow"]
)
def test_the_rows_of_a_data_frame_are_documents(tmp_path, library):
  module = pytest.importorskip(library)
  columns = {"id": [1, 2], "text": ["Moss.", None], "title": ["", "Fern"], "year": [1958, None]}
  make = module.table if library == "pyarrow" else module.DataFrame
  base = KnowledgeBase.create(tmp_path / "kb", make(columns), language="en")
  assert base.search("moss")[0].text == "Moss." and base.search("moss")[0].fields == {"year": 1958}
  assert base.documents()[0] == Document(id="2", title="Fern", text="")
  assert base.documents()[0].fields == {}
  assert base.sync(make(columns)).unchanged == 2
  assert {*base.search("moss fern")} == {*base.search("fern moss")}, "hits are hashable"


def test_a_frame_that_is_no_table_of_records_is_refused_and_a_lazy_one_is_read(base):
  pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
  twice = pandas.DataFrame([["e", "Elm.", "Elm!"]], columns=["id", "text", "text"])
  with pytest.raises(ValueError, match="several columns 'text'"):
    base.add(twice)
  times = pyarrow.array([0, 10**15], pyarrow.timestamp("s"))
  table = pyarrow.table({"id": [1, 2], "text": ["Elm.", "Ash."], "t": times})
  with pytest.raises(ValueError, match="record 1: `t` has a value that Python cannot hold"):
    base.add(table)
  with pytest.raises(ValueError, match="two documents have the id '1'"):
    base.add([{"id": 1, "text": "Elm."}, {"id": "1", "text": "Elm."}])
  for id in (None, float("nan"), pandas.NA, ""):
    with pytest.raises(ValueError, match="record 0, 'Elm.', has no id"):
      base.add([{"id": id, "text": "Elm."}])
  assert len(base) == len(PLANTS)
  assert base.add(table.slice(0, 1).to_batches()[0]).added == 1

  class LazyFrame:
    columns = ["id", "text"]

    def collect(self):
      return self

    def iter_rows(self, *, named):
      return iter([{"id": "e", "text": "Elm."}])

  LazyFrame.__module__ = "polars.lazyframe.frame"
  assert base.add(LazyFrame()).added == 1


def test_a_long_title_costs_what_it_has_and_is_found_as_a_whole(tmp_path):
  words = [f"w{number}" for number in range(5_000)]
  text = " ".join(f"Sentence {number} is about moss." for number in range(2_000))
  base = KnowledgeBase.create(tmp_path / "kb", language="en")
  base.add([{"id": "a", "title": " ".join(words), "text": text}])
  assert base.num_passages > 90
  size = sum(path.stat().st_size for path in (tmp_path / "kb" / "segments").iterdir())
  assert size < 2 * 2**20, "not the product"
  assert base.search("w4999")[0].passage == 0
  assert base.search("moss w3 w100", k=50)[49].score > base.search("moss w4999", k=50)[49].score
  found = [(hit.passage, hit.score) for hit in base.search("w3 w4999 moss", k=200)]
  base.add([{"id": "b", "text": "An oak."}])
  base.delete("b")
  base.compact()
  assert [(hit.passage, hit.score) for hit in base.search("w3 w4999 moss", k=200)] == found


@pytest.mark.parametrize("way", ["made anew", "moved", "linked", "an older copy", "older branch"])
def test_a_folder_that_is_replaced_is_followed(tmp_path, way):
  """Numbers of commits repeat, and so may inodes."""
  path, old = tmp_path / "kb", [{"id": "old", "text": "the secret salary list"}]
  base, new = KnowledgeBase.create(path, old, language="en"), None
  base.feedback("which list", useful="old")
  reader = KnowledgeBase(path)
  assert ids(reader.search("salary moss")) == ["old"] and reader.past_questions()
  elsewhere = tmp_path / "elsewhere"
  if way in ("an older copy", "older branch"):
    shutil.copytree(path, elsewhere)
    base.add([{"id": "later", "text": "A later salary."}])
    assert len(reader.search("salary")) == 2
  shutil.rmtree(path)
  if way == "made anew":
    new = KnowledgeBase.create(path, PLANTS[:1], language="en")
  elif way in ("moved", "linked"):
    new = KnowledgeBase.create(elsewhere, PLANTS[:1], language="en")
    path.symlink_to(elsewhere) if way == "linked" else elsewhere.rename(path)
  elif way == "older branch":
    KnowledgeBase(elsewhere).update([{**old[0], "text": "Moss has no salary."}])
    elsewhere.rename(path)
  else:
    elsewhere.rename(path)
  expected = KnowledgeBase(path).search("salary moss")
  assert reader.search("salary moss") == base.search("salary moss") == expected
  assert ids(expected) == (["old"] if new is None else ["moss"])
  assert reader.past_questions() == KnowledgeBase(path).past_questions()
  if new is not None:
    reader.feedback("a question", useful="moss")
    past = KnowledgeBase(path).past_questions()
    assert [one.question for one in past] == ["a question"]
    assert reader.document("old") is None


def contents(path):
  """Returns everything that the files of a folder have."""
  return b"".join(file.read_bytes() for file in pathlib.Path(path).rglob("*") if file.is_file())


@pytest.mark.parametrize("purge", [False, True])
@pytest.mark.parametrize("way", ["deleted", "updated", "the last", "twice", "by a killed process"])
def test_nothing_of_a_deleted_document_stays_in_the_folder(tmp_path, way, purge, monkeypatch):
  secret = {"id": "idsecret", "title": "titlesecret", "text": "Pin zzsecret.", "kind": "kindsecret"}
  base = KnowledgeBase.create(tmp_path / "kb", [secret, *PLANTS], language="en")
  reader = KnowledgeBase(base.path)
  base.feedback("questionsecret", useful="idsecret", answer="zzsecret")
  base.feedback("about moss", useful="moss")
  if way == "updated":
    base.update([{"id": "idsecret", "text": "Nothing."}])
    base.forget("questionsecret")
  elif way == "the last":
    base.delete(["idsecret", *(one["id"] for one in PLANTS)])
  else:
    if way == "by a killed process":
      steps = [None]  # before the commit, and not after it
      monkeypatch.setattr(memory_file.MemoryFile, "drop_missing", lambda *_: steps.pop())
    with contextlib.suppress(IndexError):
      base.delete("idsecret")
    monkeypatch.undo()
    assert [past.question for past in reader.past_questions()] == ["about moss"]
  for _ in range(2 if way == "twice" else 1):
    base.compact(purge=purge)
  there = contents(base.path)
  for trace in ("titlesecret", "zzsecret", "kindsecret", "questionsecret"):
    assert trace.encode() not in there, trace
  assert (b"idsecret" in there) == (not purge or way == "updated")
  assert len(os.listdir(tmp_path / "kb" / "commits")) == 1
  assert ids(reader.search("secret zzsecret")) == ids(KnowledgeBase(base.path).search("zzsecret"))
  assert len(reader) == len(base) == {"the last": 0, "updated": 4}.get(way, 3)


def test_a_purge_leaves_no_embedding_of_a_change_that_was_killed(base):
  path = os.path.join(base.path, "staged", f"{'0' * 16}-{'1' * 32}")
  os.makedirs(os.path.dirname(path))
  with open(path, "w") as file:
    file.write("zzsecret")
  base.compact()
  assert os.path.exists(path), "the next try takes it"
  base.compact(purge=True)
  assert b"zzsecret" not in contents(base.path)


def test_a_path_is_the_same_wherever_the_program_goes(tmp_path, monkeypatch):
  monkeypatch.setenv("HOME", str(tmp_path / "home"))
  monkeypatch.chdir(tmp_path)
  made = [KnowledgeBase.create(path, PLANTS, language="en") for path in ("kb", "./a/b", "~/kb")]
  assert str(made[0]).startswith("kb: ") and repr(made[2]).startswith("KnowledgeBase('~/kb'")
  (tmp_path / "else").mkdir()
  monkeypatch.chdir(tmp_path / "else")
  for base in made:
    base.add([{"id": "elm", "text": "An elm."}])
    base.feedback("which tree", useful="elm")
    assert base.forget("which tree") == 1 and base.compact() is None
    assert ids(pickle.loads(pickle.dumps(base)).search("elm")) == ids(base.search("elm")) == ["elm"]
  assert ids(KnowledgeBase("~/kb").search("elm")) == ["elm"]
  assert os.listdir(".") == [] and sorted(os.listdir(tmp_path)) == ["a", "else", "home", "kb"]


REFUSED = {
  "settings": {"passage_words": 0},
  "language": {"language": "klingon"},
  "text": {"texts": [{"id": "a", "text": "Moss."}, {"id": "a", "text": "Other."}]},
  "missing text": {"texts": "missing.jsonl"},
  "encoder": {"encoder": "missing"},
  "reader": {"reader": "missing"},
}


@pytest.mark.parametrize("settings", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("before", ["missing", "empty", "a knowledge base"])
def test_what_is_refused_leaves_nothing(tmp_path, settings, before):
  path = tmp_path / "above" / "kb"
  if before == "empty":
    path.mkdir(parents=True)
  elif before == "a knowledge base":
    KnowledgeBase.create(path, PLANTS, language="en")
  there = sorted(tmp_path.rglob("*"))
  with pytest.raises((ValueError, FileNotFoundError)):
    KnowledgeBase.create(path, **{"texts": PLANTS, "language": "en", **settings})
  assert sorted(tmp_path.rglob("*")) == there
  if before != "a knowledge base":
    assert len(KnowledgeBase.create(path, PLANTS, language="en")) == 3


def test_a_folder_that_is_gone_is_not_made_anew(base):
  reader = KnowledgeBase(base.path)
  os.rename(base.path, f"{base.path} moved")
  for act in (
    lambda: base.search("moss"),
    lambda: base.add(PLANTS),
    lambda: reader.delete("moss"),
    lambda: reader.feedback("moss", useful="moss"),
    lambda: reader.forget("moss"),
    lambda: base.compact(),
  ):
    with pytest.raises(FileNotFoundError, match=base.path):
      act()
    assert not os.path.exists(base.path)
  os.rename(f"{base.path} moved", base.path)
  assert ids(reader.search("moss")) == ["moss"]


def test_a_thread_that_searches_does_not_take_a_writer_back_to_an_older_commit(base, monkeypatch):
  elsewhere, opened = KnowledgeBase(base.path), folder.Folder._open
  begun, hurry = threading.Event(), threading.Event()
  reader = threading.Thread(target=base.search, args=["moss"])

  def opened_late(*args, **keywords):
    snapshot = opened(*args, **keywords)
    if threading.current_thread() is reader:
      begun.set()
      hurry.wait(timeout=0.2)
    return snapshot

  class LateEdit(Edit):
    def __init__(self, *args, **settings):
      super().__init__(*args, **settings)
      hurry.set()
      reader.join(timeout=10)

  monkeypatch.setattr(folder.Folder, "_open", opened_late)
  elsewhere.add([{"id": "elm", "text": "An elm."}])
  reader.start()
  assert begun.wait(timeout=10)
  elsewhere.add([{"id": "ash", "text": "An ash."}])
  monkeypatch.setattr(folder, "Edit", LateEdit)
  base.delete("ash")
  assert "ash" not in base and "elm" in base and not reader.is_alive()


def test_over_a_damaged_commit_nothing_is_written(base, tmp_path):
  base.add([{"id": "elm", "text": "An elm."}])
  newest = sorted((tmp_path / "kb" / "commits").iterdir())[-1]
  whole = newest.read_text()
  newest.write_text(whole[: len(whole) // 2])
  damaged = KnowledgeBase(base.path)
  assert "elm" not in damaged, "it reads the commit before"
  for write in (
    lambda: damaged.add([{"id": "ash", "text": "An ash."}]),
    lambda: KnowledgeBase.create(base.path),
  ):
    with pytest.raises(ValueError, match="nothing is written"):
      write()
  newest.write_text(whole)
  assert "elm" in KnowledgeBase(base.path), "nobody wrote over it"


def test_ties_go_to_the_first_id_whatever_the_order_they_came_in(tmp_path):
  ids = [f"{number:03}" for number in range(200)]
  base = KnowledgeBase.create(tmp_path / "kb", [{"id": i, "text": "Moss."} for i in ids[::-1]])
  assert [hit.id for hit in base.search("moss", k=3)] == ids[:3]


def test_the_folder_of_the_knowledge_base_is_no_text(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "moss.txt").write_text("Moss\n\nIt grows.")
  base = KnowledgeBase.create("kb", ".")
  base.feedback("what grows", useful="moss.txt")  # in a file whose name ends like that of records
  for change in (base.add, base.sync):
    changes = change(".")
    assert len(base) == changes.unchanged == 1 and not changes.skipped


def test_the_examples_of_the_docstrings_are_true(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  results = doctest.testmod(knowledge_base)
  assert results.attempted > 7 and not results.failed


def test_hits_are_readable_and_escaped(base):
  base.add([{"id": "<b>", "title": "<script>", "text": "Moss & <i>mosses</i> are small."}])
  hits = base.search("moss")
  assert "<mark>Moss</mark> &amp; &lt;i&gt;<mark>mosses</mark>" in hits._repr_html_()
  assert "<script>" not in hits._repr_html_() and "<b>" not in hits._repr_html_()
  assert "<script>" in repr(hits)


def test_a_title_without_text_is_found_and_kept(base):
  base.add([{"id": "elm", "title": "Elms of Norway", "text": " "}, {"id": "ash", "title": "Ash"}])
  (hit,) = base.search("norway")
  assert (hit.id, hit.title, hit.text, hit.passage) == ("elm", "Elms of Norway", "", 0)
  assert base.document("elm").title == "Elms of Norway" and base.document("elm").text == ""
  base.compact()
  assert ids(base.search("ash")) == ["ash"] and base.num_passages == 5
  assert base.add([{"id": "elm", "title": "Elms of Norway"}]).unchanged == 1
  base.delete("ash")
  assert not base.search("ash")
  yew, fir = ({"id": id, "title": "", "text": ""} for id in ("yew", "fir"))
  assert base.update([yew, {"id": "elm", "title": "Elms of Norway"}]).skipped
  with pytest.raises(ValueError, match="nothing could be read; records without text: record 0"):
    base.add([yew, fir])


def test_fields_are_those_of_documents_that_are_there(base):
  assert base.fields.keys() == {"year", "tags", "kind", "rare"}
  base.delete("oak")
  assert base.fields.keys() == {"year", "tags"} and base.fields["year"] in (1958, 1960)
  for _ in range(2):
    with pytest.raises(ValueError, match="no document has a field 'kind'; there are: tags, year"):
      base.search("moss", where={"kind": "tree"})
    base.compact()


@pytest.mark.parametrize("terms", [None, postings.FORMAT - 1])
def test_a_commit_of_another_format_or_with_other_terms_is_refused(base, tmp_path, terms):
  newest = sorted((tmp_path / "kb" / "commits").iterdir())[-1]
  found = json.loads(newest.read_text())
  number = 99 if terms is None else f"{found['format'].removesuffix(f'.{postings.FORMAT}')}.{terms}"
  newest.write_text(json.dumps({**found, "format": number}))
  with pytest.raises(
    ValueError, match=f"has format {number} of another version, .*anew in another folder"
  ):
    KnowledgeBase(base.path)


@pytest.mark.parametrize("mine", ["segments/mine.txt", "commits/notes.json", "directory.lock.bak"])
def test_what_is_in_folders_of_the_same_name_is_not_taken_for_its_own(base, tmp_path, mine):
  acts = {"mine": lambda: KnowledgeBase.create(tmp_path / "mine")}
  if "/" in mine:
    acts["kb"] = lambda: base.delete("moss")
  for name, act in acts.items():
    path = tmp_path / name / mine
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    with pytest.raises(ValueError, match=f"{mine}.*nothing there is replaced"):
      act()
    assert path.read_text() == "mine"


def test_documents_are_listed_and_read_in_any_history(base):
  base.delete("fern")
  base.update(
    [{"id": "elm", "title": "Elm", "text": "An elm. It\ngrows."}, {**PLANTS[2], "year": 7}]
  )
  base.compact()
  listed = base.documents()
  assert {one.id for one in listed} == {"moss", "oak", "elm"}
  pages = [base.documents(first=n, count=1) for n in range(4)]
  assert [one for page in pages for one in page] == listed and pages[3] == []
  assert base.document("elm") in listed and base.document("elm").text == "An elm. It\ngrows."
  assert base.document("oak").fields["year"] == 7 and base.document("fern") is None
  assert {*base.examples(9)} == {"Moss", "Elm", "An oak is a tree."}
  assert len(base.examples(2)) == 2 and base.examples(0) == []
  base.sync([{"id": "苔", "title": "苔" * 99, "text": "苔。"}])
  assert base.examples() == ["苔" * 60]


def test_the_history_has_what_was_changed_newest_first(base):
  base.update([{**PLANTS[0], "year": 7}, {"id": "elm", "text": "An elm."}])
  base.add(PLANTS[1:])
  base.delete("fern")
  base.compact()
  deleted, updated, created = KnowledgeBase(base.path).history
  assert (deleted.deleted, deleted.ids) == (1, ("fern",)) and not deleted.added
  assert (updated.added, updated.updated, {*updated.ids}) == (1, 1, {"moss", "elm"})
  assert created.added == 3 and created.time <= updated.time <= deleted.time


_IN_ENGLISH = (
  "The tokenizer writes tokens of all pages in steps, and the filter drops stale answers while the "
  "handling of the latest layer is frozen."
)
_IN_GERMAN = (
  "Das Ministerium regelt die Beförderung gefährlicher Güter, und jedes Jahr prüfen Kontrolleure "
  "die Häfen des Landes."
)


@pytest.mark.parametrize("language", ["auto", ("de", "en"), ("de", "en", "es", "fr", "it", "zh")])
def test_every_word_of_a_document_finds_it_among_other_languages(tmp_path, language):
  texts = [{"id": "en", "text": _IN_ENGLISH}, {"id": "de", "text": _IN_GERMAN}]
  base = KnowledgeBase.create(tmp_path / "kb", texts, language=language)
  for document in texts:
    for word in document["text"].rstrip(".").replace(",", "").split():
      if word not in "The of all in and the is":  # English has stop words
        assert document["id"] in ids(base.search(word)), word
  assert ids(base.search("page token answer")) == ["en"]
  assert ids(base.search("gefährlich Hafen")) == ["de"]


def test_a_language_is_found_when_a_document_is_added(tmp_path):
  english = [{"id": f"en{i}", "text": f"{_IN_ENGLISH} Copy {i}."} for i in range(99)]
  others = [
    {"id": "zh", "text": "北京是中华人民共和国的首都，也是全国的政治和文化中心。"},
    {"id": "ru", "text": "Москва является столицей Российской Федерации."},
    {"id": "th", "text": "กรุงเทพมหานครเป็นเมืองหลวงและนครที่มีประชากรมากที่สุดของประเทศไทย"},
    {"id": "de", "text": _IN_GERMAN},
  ]
  asked = {"北京": "zh", "首都": "zh", "столица": "ru", "เมืองหลวง": "th", "Hafen": "de"}
  together = KnowledgeBase.create(tmp_path / "together", [*english, *others])
  apart = KnowledgeBase.create(tmp_path / "apart", english)
  found = [(hit.id, hit.score) for hit in apart.search("pages of copy 7")]
  for document in others:
    apart.add([document])
  assert [hit for hit, _ in found] == ids(apart.search("pages of copy 7"))
  for base in (together, apart):
    assert {question: ids(base.search(question)) for question in asked} == {
      question: [id] for question, id in asked.items()
    }
  before = [[(hit.id, hit.score) for hit in apart.search(question)] for question in asked]
  apart.compact()
  assert [[(hit.id, hit.score) for hit in apart.search(question)] for question in asked] == before


def test_what_is_warm_has_loaded_what_recognises_languages(tmp_path):
  texts = [{"id": "en", "text": _IN_ENGLISH}, {"id": "de", "text": _IN_GERMAN}]
  base = KnowledgeBase.create(tmp_path / "kb", texts)
  languages._loaded_identifier.cache_clear()
  base.warm()
  assert languages._loaded_identifier.cache_info().currsize == 1
  KnowledgeBase.create(tmp_path / "empty").warm()


def test_what_documents_and_models_say_does_not_reach_the_terminal_as_commands(tmp_path, capsys):
  hostile = "\x1b]52;c;cm0=\x07\x1b[2J\x9b\rmoss"
  fields = {"title": hostile, "text": f"moss {hostile}\x1b", f"n{hostile}": hostile}
  file = tmp_path / "a.jsonl"
  file.write_text(json.dumps({"id": hostile, **fields}) + '\n{"id": "\\u001b[1m"}\n')
  path = str(tmp_path / "kb")
  assert main.main(["kb", "create", path, str(file), "--language=en"]) == 0
  assert main.main(["kb", "search", path, "moss"]) == 0
  assert main.main(["kb", "search", path, "moss", '--where={"\\u001b[2J": 1}']) == 1
  base = KnowledgeBase(path)
  print(base.answer("moss", generate=lambda *_: f"{hostile} [1]"), base.search("moss"))
  shown = capsys.readouterr()
  for text in (shown.out, shown.err):
    assert "moss" in text and not {*text} & {*"\x1b\x07\x9b\r"}, text


@pytest.mark.parametrize(
  "name", ["directory.lock", "memory.jsonl", "commits", "segments", "models", "staged", "else"]
)
def test_no_link_in_a_folder_from_elsewhere_is_followed(base, tmp_path, name):
  mine = tmp_path / "mine"
  path = os.path.join(base.path, name)
  if os.path.isdir(path):
    shutil.move(path, mine)
  else:
    mine.write_text("mine")
    with contextlib.suppress(FileNotFoundError):
      os.unlink(path)
  os.symlink("../mine", path)
  before = contents(tmp_path)
  for act in (
    lambda: KnowledgeBase(base.path),
    lambda: base.feedback("moss", useful="moss"),
    lambda: base.add([{"id": "elm", "text": "An elm."}]),
    lambda: base.publish("gs://bucket/kb"),
  ):
    with pytest.raises(ValueError, match=f"{name} is a link, which is not opened"):
      act()
  assert contents(tmp_path) == before


def text_of(base, id):
  found = base.document(id)
  return found.text if found else ""


def test_a_hit_says_where_it_is_in_its_document(tmp_path):
  words = [f"Größe {n} of moss {n} in the shade {n}." for n in range(40)]
  sections = "\n\n".join(f"## Part {n}\n\n{words[n]}" for n in range(40))
  (tmp_path / "a").mkdir()
  (tmp_path / "a" / "moss.md").write_text(f"# Moss\n\nSmall.\n\n{sections}\n")
  page = f"<h1>Oak</h1><p>{' '.join(words)}</p><pre>x\n\n\n  oak = 1</pre>"
  (tmp_path / "a" / "oak.html").write_text(page)
  base = KnowledgeBase.create(tmp_path / "kb", tmp_path / "a", language="en")
  base.add({"id": "note", "text": "A note\n\n\n on moss. "})
  for _ in range(2):
    for hit in base.search("moss shade oak note", k=100):
      text = text_of(base, hit.id)
      assert text[hit.start : hit.end] == hit.text
      if hit.id == "moss.md" and hit.heading:
        begin = text.index(hit.heading + "\n\n")
        assert begin <= hit.start or hit.text.startswith(hit.heading)
    assert {hit.heading for hit in base.search("oak", k=9) if hit.id == "oak.html"} == {"Oak"}
    base.compact()
  assert text_of(base, "note") == "A note\n\n\n on moss."
  part = next(hit for hit in base.search("Größe 17") if "moss 17" in hit.text)
  assert part.location == part.heading and f"({part.heading})" in repr(base.search("Größe 17"))


def test_a_document_whose_pages_move_is_updated():
  one, two = (Document(id="a", title="", text="ab", outline=(Mark(n, 1, ""),)) for n in (0, 1))
  assert not np.array_equal(content_digests([one]), content_digests([two]))


def test_a_heading_is_searched_with_each_passage_of_its_section(tmp_path):
  words = " ".join(f"Sentence {n} is about what grows there." for n in range(60))
  (tmp_path / "a.md").write_text(f"# Moss\n\nSmall.\n\n## Fertilizer\n\n{words}\n\n## End\n\nx\n")
  base = KnowledgeBase.create(tmp_path / "kb", tmp_path / "a.md", language="en")
  for _ in range(2):
    hits = base.search("fertilizer", k=50)
    assert len(hits) > 2 and all(
      hit.heading == "Fertilizer" or "Fertilizer" in hit.text for hit in hits
    )
    base.compact()
  (tmp_path / "long.md").write_text(f"# A\n\n## {'moss ' * 1_000}\n\n{words}\n")
  base.add(tmp_path / "long.md")
  assert max(len(hit.heading) for hit in base.search("moss", k=50)) == limits.HEADING
