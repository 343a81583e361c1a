"""What a search does with the passages that it has found."""

import dataclasses
import datetime
import inspect

import numpy as np
import pytest

from realm_jax import main
from realm_jax.command_line import flags
from realm_jax.jobs.knowledge_base import questions as verbs
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.learning import refining
from realm_jax.knowledge_base.store.hits import Hits
from realm_jax.knowledge_base.store.query import Query
from realm_jax.knowledge_base.store.snapshot import Snapshot

WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("aro", "elin", "ino", "oru", "umea")]


def sentence(seed, count=12):
  draw = np.random.default_rng(seed)
  return " ".join(draw.choice(WORDS, count)).capitalize() + "."


@pytest.fixture(scope="module")
def base(tmp_path_factory):
  """Twenty notes on rivers from 2001 on, one of them of many passages and one in three copies."""
  records = [
    {"id": f"n{i:02}", "text": f"The river. {sentence(i, 8 + i % 5)}", "date": f"20{i:02}-06-01"}
    for i in range(1, 21)
  ]
  long = " ".join(f"The river, the river. {sentence(100 + i, 20)}" for i in range(60))
  copied = f"A river is a stream. {sentence(300, 17)}"
  copies = [copied, copied.upper(), copied.replace("A river", "The river")]
  records += [{"id": "long", "text": long, "place": "Rome"}]
  records += [{"id": f"copy{i}", "text": text} for i, text in enumerate(copies)]
  made = KnowledgeBase.create(
    tmp_path_factory.mktemp("refining") / "kb", records, passage_words=25, language="en"
  )
  assert made.num_passages > 40
  return made


def ids(hits):
  return [hit.id for hit in hits]


def test_without_options_nothing_changes(base):
  plain = base.search("river", k=40)
  assert base.search("river", k=40, per_document=None, distinct=False, around=0) == plain
  assert ids(plain)[:25].count("long") > 10


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_document_has_no_more_hits_than_asked_and_the_others_move_up(base, most):
  every = base.search("river", k=1000)
  found = base.search("river", k=10, per_document=most)
  assert len(found) == 10 and max(map(ids(found).count, ids(found))) == most
  seen, expected = {}, []
  for hit in every:
    seen[hit.id] = seen.get(hit.id, 0) + 1
    expected += [hit] * (seen[hit.id] <= most)
  assert list(found) == expected[:10]
  every_document = base.search("river", k=1000, per_document=1)
  assert len(every_document) == len({*ids(every)}) == base.num_documents


def test_a_passage_that_only_a_deeper_ranking_finds_makes_no_other_one_twice(base):
  """As of many passages, where a deeper ranking reads more embeddings."""
  every = base.search("river", k=1000)
  found, _ = refining.refined(
    Snapshot.__new__(Snapshot),
    Query("river", k=60, per_document=55),
    rank=lambda depth: (every[:depth] if depth > 60 else every[1 : depth + 1],),
  )
  assert len({(hit.id, hit.passage) for hit in found}) == len(found) == 60


def test_what_is_nearly_the_same_is_told_once_with_the_others(base):
  found = base.search("river stream", k=1000, distinct=True)
  (copy,) = [hit for hit in found if hit.id.startswith("copy")]
  assert {copy.id, *copy.same} == {"copy0", "copy1", "copy2"}
  assert "nearly the same: " in repr(found)
  others = [hit for hit in base.search("river stream", k=1000) if not hit.id.startswith("copy")]
  assert [hit for hit in found if hit is not copy] == others  # which have other words


WALK = (
  "今天北京的天气很好，我们一起去公园散步，看见了很多人和他们的孩子，"
  "然后在湖边吃了{}饭，下午又坐车去朋友的家里喝茶，一直到很晚才回来。"
)


@pytest.mark.parametrize(
  "texts",
  [
    [("Wing flutter", ""), ("Wing stall at speed", ""), ("Wing stall, at speed", "")],
    [("Wing", "☃ ☃"), ("Wing", "☂ ☂"), ("Wing", "☂ ☂")],
    [
      ("", "昨天上海的天气不好，他们在家里看电影。"),
      ("", WALK.format("午")),
      ("", WALK.format("晚")),
    ],
  ],
  ids=["titles", "signs", "no spaces"],
)
def test_also_titles_signs_and_texts_without_spaces_are_told_apart(tmp_path, texts):
  records = [
    {"id": id, "title": of, "text": text} for id, (of, text) in zip("abc", texts, strict=True)
  ]
  base = KnowledgeBase.create(tmp_path / "kb", records)
  found = base.search("wing 天气", distinct=True)
  assert sorted("".join(sorted((hit.id, *hit.same))) for hit in found) == ["a", "bc"]


def test_numbers_of_any_size_tell_what_is_newer(tmp_path):
  base = KnowledgeBase.create(tmp_path / "kb", language="en")
  numbers = {"a": -(10**400), "b": 3, "c": 10**400}
  base.add([{"id": id, "text": "moss", "number": number} for id, number in numbers.items()])
  assert [hit.id for hit in base.search("moss", newer="number:1")] == ["c", "b", "a"]


def test_newer_documents_come_first_the_more_the_shorter_the_half_life(base):
  plain = base.search("river", k=20, where={"date": {"exists": True}})
  slow = base.search("river", k=20, newer="date:1e9", where={"date": {"exists": True}})
  assert [hit.score for hit in slow] == pytest.approx([hit.score for hit in plain])
  fast = base.search("river", k=20, newer="date:30", where={"date": {"exists": True}})
  assert sorted(ids(fast)) == sorted(ids(plain))
  ahead = {hit.id for hit in plain if hit.score > plain[-1].score}
  assert 10 < len(ahead) < 20 and ids(plain)[0] != "n20"
  assert ids(fast)[:4] == sorted(ahead, reverse=True)[:4]
  # A lead of one half after one half-life.
  by_id, low = {hit.id: hit.score for hit in plain}, plain[-1].score
  halved = base.search("river", k=20, newer="date:365.25", where={"date": {"exists": True}})
  aged = {hit.id: hit.score for hit in halved}
  assert aged["n20"] == pytest.approx(by_id["n20"])
  assert aged["n19"] - low == pytest.approx((by_id["n19"] - low) / 2, rel=0.01)


def test_the_newest_time_of_a_list_counts_and_one_to_come_makes_no_other_old(tmp_path):
  texts = ["A moss, a moss.", "A moss is a plant.", "A moss is no tree, but a plant of the shade."]
  today = f"{datetime.date.today()}"
  for number, times in enumerate([("2001-01-01", today), (["2001-01-01", today], "2002-01-01")]):
    for last in ("2000-01-01", "9999-01-01"):
      records = [
        {"id": id, "text": text, "time": time}
        for id, text, time in zip("abc", texts, [*times, last], strict=True)
      ]
      base = KnowledgeBase.create(tmp_path / f"{number}{last}", records, language="en")
      plain, found = base.search("moss"), base.search("moss", newer="time:9")
      (newest,) = [hit.id for hit in found if today in hit.fields["time"]]
      assert ids(plain) == [*"abc"] and ids(found)[0] == newest


def test_a_reranker_orders_the_best(base):
  asked = []

  def rerank(question, texts):
    asked.append((question, len(texts)))
    return [len(text) for text in texts]

  found = base.search("river", k=5, rerank=rerank)
  assert asked == [("river", min(50, base.num_passages))]
  longest = sorted((len(hit.text) for hit in base.search("river", k=50)), reverse=True)
  assert [len(hit.text) for hit in found] == longest[:5] == [hit.score for hit in found]

  class Encoder:
    def predict(self, pairs, **_):
      return np.array([-len(text) for _, text in pairs], np.float32)

  assert len(base.search("river", k=1, rerank=Encoder())[0].text) == longest[-1]
  deep = base.search("river", k=60, rerank=rerank)
  apart = base.search("river", k=24, per_document=1, rerank=lambda question, texts: [-1.0] * 50)
  assert len(apart) == base.num_documents
  for hits in (deep, apart):
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
  assert len({(hit.id, hit.passage) for hit in deep}) == len(deep) == 60 < base.num_passages


@pytest.mark.parametrize("scores", [[1.0], [[1.0]] * 50, [float("nan")] * 50, None])
def test_scores_that_are_none_are_refused(base, scores):
  with pytest.raises((ValueError, TypeError), match="rerank returned|None"):
    base.search("river", rerank=lambda question, texts: scores)


@pytest.mark.parametrize(
  ("asked", "said"),
  [
    ({"newer": "date"}, "give FIELD:HALF_LIFE"),
    ({"newer": "date:0"}, "give FIELD:HALF_LIFE"),
    ({"newer": ":5"}, "give FIELD:HALF_LIFE"),
    ({"newer": "date:nan"}, "give FIELD:HALF_LIFE"),
    ({"newer": "nothing:5"}, "newer: no document has a field 'nothing'; there are: date, place"),
    ({"newer": "place:5"}, "no place is a number or a time .* one is 'Rome'"),
    ({"per_document": 0}, "per_document"),
    ({"around": -1}, "around"),
  ],
)
def test_what_makes_no_sense_is_refused(base, asked, said):
  with pytest.raises(ValueError, match=said):
    base.search("river", **asked)


def test_what_stands_around_is_told(base):
  every = base.search("river", k=1000, around=1)
  (hit,) = [hit for hit in every if (hit.id, hit.passage) == ("long", 3)]
  texts = {hit.passage: hit.text for hit in every if hit.id == "long"}
  assert hit.around.splitlines() == [texts[2], texts[3], texts[4]]
  whole = base.search("river stream", k=1, around=10_000)[0]
  assert whole.around == base.document(whole.id).text


def test_options_go_together_and_through_the_command_line(base, capsys):
  found = base.search("river", k=6, per_document=1, distinct=True, newer="date:400", around=1)
  assert len({*ids(found)}) == 6
  flags = ["--k=6", "--per_document=1", "--distinct", "--newer=date:400", "--around=1"]
  assert main.main(["kb", "search", str(base.path), "river", *flags]) == 0
  assert capsys.readouterr().out == f"{found!r}\n"


def test_each_way_to_ask_has_the_fields_of_the_query(base):
  asked = ({"k": 3, "where": {"date": {"exists": True}}, "min_answerable": None}, "date:30")
  query = Query("river", newer=asked[1], **asked[0])
  by_hand = base.search("river", newer=asked[1], **asked[0])
  assert base.search(**vars(query)) == by_hand and len(by_hand) == 3
  named = [*inspect.signature(base.search).parameters]
  assert named == [field.name for field in dataclasses.fields(Query)]
  assert inspect.signature(base.search) == inspect.signature(base.answer).replace(
    return_annotation=Hits
  )
  of_flags = flags.flatten(flags.keywords(verbs.search))
  listed = {k.name.removeprefix("query.") for k in of_flags if not k.name.startswith("opening.")}
  assert listed == {*named} - {"rerank", "generate"}
  with pytest.raises(TypeError, match="per_documents"):
    base.search("river", per_documents=1)


def test_texts_and_values_make_the_same_query():
  pytest.importorskip("fastapi")
  from realm_jax.web.knowledge_base import asking

  values = {"question": "river", "k": 3, "where": {"year": {"lt": 1960}}, "by": "words"}
  texts = {"q": "river", "k": "3", "where": '{"year": {"lt": 1960}}', "by": "words", "page": "2"}
  expected = Query("river", k=3, where={"year": {"lt": 1960}}, by="words")
  assert asking.query(values) == asking.query(texts) == expected
  for wrong in ({"k": "101"}, {"k": "0"}, {"by": "luck"}, {"q": "x" * 2001}, {"where": "[1]"}):
    with pytest.raises(ValueError, match="101|k=0|by|2,001|where"):
      asking.query({"q": "river", **wrong})


def test_of_the_question_before_the_rarest_word_is_searched_as_well(tmp_path):
  texts = {
    "fern": "The fern is a plant of the shade.",
    "moss": "The moss is a plant of the shade.",
    "oak": "The oak is a plant of the sun.",
    "size": "How tall a plant is depends on the sun.",
  }
  records = [{"id": id, "text": text} for id, text in texts.items()]
  base = KnowledgeBase.create(tmp_path / "kb", records, language="en")
  question = "how tall is it"
  assert ids(base.search(question)) == ["size"]
  found = base.search(question, after="Is a moss a plant of the shade?")
  assert [*found] == [*base.search(f"{question} moss")] and {*ids(found)} == {"size", "moss"}
  assert found.question == question
  for nothing in (None, "", "?", "how tall", "an unknownword"):
    assert [*base.search(question, after=nothing)] == [*base.search(question)]
  with pytest.raises(ValueError, match="ask with a string"):
    base.search(question, after=["moss"])
  assert not KnowledgeBase.create(tmp_path / "empty", language="en").search("a", after="moss")
