"""What was asked before and answered by a passage, and what searches make of it."""

import contextlib
import dataclasses
import json
import os
import pathlib
import unicodedata

import numpy as np
import pytest

from realm_jax.foundations import plain_files
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.learning import memory_file, question_similarity, use_memory
from realm_jax.knowledge_base.learning.question_similarity import Words
from tests.knowledge_base import tiny_models

PLANTS = [
  {"id": "moss", "title": "Mosses", "text": "Moss grows in the shade. It is soft.", "year": 1958},
  {"id": "fern", "text": "A fern has leaves in the shade. It is green.", "year": 1960},
  {"id": "oak", "text": "An oak is a tall tree.", "year": 1965},
  *({"id": f"rock {n}", "text": f"A stone in the shade number {n}."} for n in range(20)),
]
ASKED = "which plant lives in the shade"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
  return tiny_models.write(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(params=["words", "encoder", "fused"])
def base(request, tmp_path):
  made = KnowledgeBase.create(
    tmp_path / "kb",
    PLANTS,
    language="en",
    passage_words=7,
    encoder=None if request.param == "words" else request.getfixturevalue("encoder"),
  )
  with made._folder.exclusively() as edit:
    edit.settings = dataclasses.replace(edit.settings, ranking=request.param)
  return made


@pytest.fixture
def words(tmp_path):
  return KnowledgeBase.create(tmp_path / "kb", PLANTS, language="en", passage_words=7)


def content_of(base):
  """Returns the lines in which a base remembers."""
  with open(os.path.join(base.path, use_memory.FILE), "rb") as file:
    return file.read()


def scores(base, question, **settings):
  return {(hit.id, hit.passage): hit.score for hit in base.search(question, k=99, **settings)}


def spread(base, question):
  """The distance of the best score from the mean one, which is 0 unless the encoder ranks alone."""
  before = [*scores(base, question).values()]
  return max(before) - (np.mean(before) if base.commit.settings.ranking == "encoder" else 0)


def test_a_useful_passage_rises_by_the_strength_and_says_why(base):
  before, far = scores(base, ASKED), spread(base, ASKED)
  base.feedback(ASKED, useful="oak")
  hits = base.search(ASKED, k=99)
  after = {(hit.id, hit.passage): hit.score for hit in hits}
  assert after[("oak", 0)] == pytest.approx(
    before.get(("oak", 0), 0) + use_memory.STRENGTH * far, rel=1e-4
  )
  assert {hit.id: hit.useful_for for hit in hits if hit.useful_for} == {"oak": ASKED}
  assert f"useful for: {ASKED}" in repr(hits)
  others = [place for place in before if place != ("oak", 0)]
  assert [after[place] for place in others] == [before[place] for place in others]
  assert "oak" not in {hit.id for hit in base.search(ASKED, where={"year": {"lt": 1965}}, k=99)}


def test_a_passage_that_was_not_useful_falls_by_as_much(base):
  before, far = scores(base, ASKED), spread(base, ASKED)
  first = base.search(ASKED, k=1)[0]
  base.feedback(ASKED, not_useful=first)
  place = first.id, first.passage
  after = scores(base, ASKED)
  assert after[place] == pytest.approx(before[place] - use_memory.STRENGTH * far, rel=1e-4)
  assert base.search(ASKED, k=1)[0] != first and not base.search(ASKED, k=99)[-1].useful_for
  base.feedback(ASKED, useful=first)
  assert base.search(ASKED, k=1)[0].useful_for == ASKED, "what was said last counts"
  base.feedback(ASKED + "?!", not_useful=first)
  assert set(scores(base, ASKED)) == set(before)


def test_a_passage_without_a_word_of_the_question_is_not_found_to_be_lowered(words):
  found = scores(words, "tall")
  words.feedback("tall", useful="oak", not_useful="moss")
  assert scores(words, "tall").keys() == found.keys() == {("oak", 0)}
  words.feedback("tall shade", useful="fern", not_useful="oak")
  assert ("oak", 0) in scores(words, "tall shade"), "it has a word of the question"


def test_the_best_k_are_those_of_all(base):
  found = base.search(ASKED, k=99)
  base.feedback(ASKED, not_useful=found[:4], useful=found[-2:])
  every = base.search(ASKED, k=99)
  for k in range(1, len(every)):
    assert [*base.search(ASKED, k=k)] == [*every[:k]]


TOPICS = [" ".join(f"{a}{b}{c}ng" for b in "aeiou" for c in "ls") for a in "bdfgklmp"]


def of_topics(path, *, alike):
  """Returns a base after twelve questions about each topic were fed back.

  Questions about a topic have one answer, which words do not find, or each another.
  """
  documents = [
    {"id": f"{topic[:2]} {n}", "text": f"{topic} number{n}."}
    for topic in TOPICS
    for n in "abcdefghijkl"
  ]
  documents += [{"id": f"all {topic[:2]}", "text": f"{topic} {'of all ' * 20}"} for topic in TOPICS]
  made = KnowledgeBase.create(path, documents, language="en")
  for n in "abcdefghijkl":
    for topic in TOPICS:
      useful = f"all {topic[:2]}" if alike else f"{topic[:2]} {n}"
      made.feedback(f"who knows {topic} number{n}", useful=useful)
  return made


def test_similar_questions_move_passages_as_far_as_it_would_have_helped(tmp_path):
  question = f"{TOPICS[3]} numberc"
  alike = of_topics(tmp_path / "alike", alike=True)
  hits = alike.search(question, k=3, explain=True)
  assert hits[0].id == "all ga" and hits[0].useful_for
  assert hits.earned.strength in use_memory.STRENGTHS and len(hits.earned.questions) >= 10
  assert TOPICS[3] in hits.earned.questions[0] and "similar questions move" in repr(hits)
  assert alike.search("tall trees", explain=True).earned.strength == 0
  assert alike.search(question).earned is None
  opened = KnowledgeBase(alike.path).search(question, k=3, explain=True)
  assert opened.earned == hits.earned and [*opened] == [*hits]

  unlike = of_topics(tmp_path / "unlike", alike=False)
  assert unlike.search(question, explain=True).earned.strength == 0
  assert not any(hit.useful_for for hit in unlike.search(question, k=60))


def test_fewer_than_ten_trials_move_nothing(words):
  unlike = ["tall tree", "a soft stone", "green leaves"]
  before = [scores(words, other) for other in unlike]
  for name in ("alice", "bob", "carol"):
    words.feedback(f"which plant does {name} water", useful=PLANTS[0]["id"])
  words.feedback("which plant does dora water", useful="oak")
  question = "which plants that dora waters"
  assert "oak" not in {hit.id for hit in words.search(question, k=99)}
  assert words.search("Which plant  does dora WATER", k=1)[0].id == "oak", "the same question"
  assert [scores(words, other) for other in unlike] == before, "to the bit"


def test_an_answer_is_looked_for_in_the_best_passages(words):
  past = words.feedback("what is in the shade", answer=["leaves", "needles"])
  assert [one.id for one in past.useful] == ["fern"]
  assert words.search("what is in the shade", k=1)[0].id == "fern"
  past = words.feedback("what is in the shade", answer="whales")
  assert past.answers == ("whales",) and [one.id for one in past.useful] == ["fern"]
  assert words.feedback("what swims in the sea", answer="whales").useful == ()
  past = words.feedback("what has leaves", answer="leaves", not_useful="fern")
  assert past.useful == () and [one.id for one in past.not_useful] == ["fern"]
  past = words.feedback("is it soft", useful="moss")
  assert [(one.id, one.passage) for one in past.useful] == [("moss", 1)], "its best passage"


def test_past_questions_are_listed_and_forgotten(words):
  for number in range(3):
    words.feedback(f"question {number}", useful="oak")
  words.feedback("Question  0", not_useful="moss")
  listed = words.past_questions()
  assert [past.question for past in listed] == ["Question  0", "question 2", "question 1"]
  assert [one.id for one in listed[0].useful] == ["oak"]
  assert words.past_questions(first=1, count=1) == listed[1:2]
  assert words.forget(["question 0", "question 2"]) == 2
  assert [past.question for past in KnowledgeBase(words.path).past_questions()] == ["question 1"]
  content = content_of(words).lower()
  assert b"question 1" in content and b"question 0" not in content.replace(b"  ", b" ")
  with pytest.raises(ValueError, match="'question 7'"):
    words.forget(["question 1", "question 7"])
  for wrong in (3, [3], None):
    with pytest.raises(ValueError, match="ask with a string"):
      words.forget(wrong)
  assert words.forget("question 1") == 1 and words.past_questions() == []
  assert not os.path.exists(os.path.join(words.path, use_memory.FILE))


def test_what_was_said_about_a_passage_is_taken_back(words):
  before = scores(words, ASKED)
  words.feedback(ASKED, useful=["oak", "moss"], not_useful="fern")
  left = words.take_back(ASKED.upper(), ["fern", ("oak", 0)])
  assert left == words.past_questions()[0] == KnowledgeBase(words.path).past_question(ASKED)
  assert [one.id for one in left.judged] == ["moss"]
  assert b'"fern"' not in content_of(words)
  words.update([{**PLANTS[0], "text": "Moss has another text."}])
  for wrong in (("oak", 0), "elm", ("moss", 1), []):
    with pytest.raises(ValueError, match="nothing was said"):
      words.take_back(ASKED, wrong)
  assert words.take_back(ASKED, "moss") is None and words.past_questions() == []
  words.update([PLANTS[0]])
  assert scores(words, ASKED) == before
  words.feedback(ASKED, answer="shade", useful="moss")
  assert words.take_back(ASKED, words.search(ASKED)).answers == ("shade",)


def test_what_was_said_goes_with_its_document(words):
  words.feedback("question 1", useful="oak")
  words.feedback("question 2", useful=["oak", "moss"])
  words.feedback("question 3", answer="whales")
  words.delete("oak")
  assert [(p.question, len(p.useful)) for p in words.past_questions()] == [
    ("question 3", 0),
    ("question 2", 1),
  ]
  assert b'"oak"' not in content_of(words)
  words.sync(PLANTS[2:3])
  assert [past.question for past in words.past_questions()] == ["question 3"]


def test_a_passage_with_another_text_is_not_meant(words):
  words.feedback(ASKED, useful="moss")
  before = scores(words, ASKED)
  words.update([{**PLANTS[0], "text": "It is soft. Moss grows in the shade.", "title": ""}])
  (found,) = {h.passage for h in words.search(ASKED, k=99) if h.useful_for}
  assert words.search(ASKED, k=1)[0].text.startswith("Moss"), "it moved in its document"
  words.update([{**PLANTS[0], "text": "Moss grows where no light is."}])
  assert not any(hit.useful_for for hit in words.search(ASKED, k=99))
  words.update([PLANTS[0]])
  assert scores(words, ASKED) == before and found == 1


@pytest.mark.parametrize(
  ("said", "named"),
  [
    ({}, "says nothing"),
    ({"answer": ""}, "says nothing"),
    ({"answer": [" \n", "\u200b"]}, "says nothing"),
    ({"answer": [9]}, "answer=9 is no text"),
    ({"answer": 9}, "answer=9 is no text"),
    ({"answer": {"value": "x"}.items()}, "is no text"),
    ({"useful": "elm"}, "'elm'"),
    ({"useful": ["oak", "elm"]}, "'elm'"),
    ({"useful": ("oak", 9)}, "passages, not 9"),
    ({"useful": ("oak", -1)}, "passages, not -1"),
    ({"not_useful": 7}, "7"),
    ({"useful": None}, "None"),
    ({"useful": b"oak"}, "b'oak'"),
    ({"useful": "oak", "not_useful": ["fern", "oak"]}, "'oak'.*useful and not useful"),
  ],
)
def test_a_mistake_is_named_and_nothing_remembered(words, said, named):
  with pytest.raises((ValueError, TypeError), match=named):
    words.feedback("question", **said)
  with pytest.raises(ValueError):
    words.feedback(" ", useful="oak")
  with pytest.raises(ValueError, match="surrogate"):
    words.feedback("\ud800", useful="oak")
  assert words.past_questions() == []


def test_a_half_line_is_passed_over_and_a_damaged_one_named(words, caplog):
  for number in range(3):
    words.feedback(f"question {number}", useful="oak")
  path = os.path.join(words.path, use_memory.FILE)
  content = content_of(words)
  for end in range(len(content)):
    with open(path, "wb") as file:
      file.write(content[:end])
    whole = sum(line.startswith(b'{"question"') for line in content[:end].split(b"\n")[:-1])
    assert len(KnowledgeBase(words.path).past_questions()) == whole
  words.feedback("question 3", useful="oak")
  assert [p.question for p in words.past_questions()] == [f"question {n}" for n in (3, 2, 1, 0)]
  lines = [line for line in open(path, "rb") if line.startswith(b'{"trial_of": "question 2"')]
  assert len(lines) == 1 and lines[0].endswith(b"}\n"), "tried again, after the half line"
  with open(path, "wb") as file:
    file.write(b'{"question": 7}\n[]\nzzz\n' + content)
  assert len(KnowledgeBase(words.path).past_questions()) == 3
  assert "damaged line" in caplog.text


DAMAGED = [
  b'{"trial_of": "question 1", "gains": {"words": [1, 2]}, "num_questions": 1, "num_passages": 2}',
  b'{"trial_of": "question 1", "gains": {"words": [1, 1, 1, 1, 1, 1e999]}, "num_questions": 1, '
  b'"num_passages": 2}',
  b'{"trial_of": "question 1", "gains": {}, "num_questions": 1e999, "num_passages": 2}',
  b'{"trial_of": "question 1", "gains": {}, "num_questions": %d, "num_passages": 2}' % 10**99,
  b'{"trial_of": "of no question", "gains": {}, "num_questions": 1, "num_passages": 2}',
  b'{"removed": [-1, "x"]}',
  b'{"question": "question 2", "useful": 7}',
  b"null",
  b"\xff\xfe",
  b"  ",
]


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_changes_nothing_else(words, line):
  for number in range(3):
    words.feedback(f"question {number}", useful="oak")
  path = os.path.join(words.path, use_memory.FILE)
  past = words.past_questions()
  with open(path, "ab") as file:
    file.write(line + b"\n")
  for base in (words, KnowledgeBase(words.path)):
    remembered = [hit.useful_for for hit in base.search("question 1", k=99) if hit.id == "oak"]
    assert base.past_questions() == past and remembered == ["question 1"]
  words.feedback("question 3", useful="oak")
  words.forget("question 3")
  assert KnowledgeBase(words.path).past_questions() == past


@pytest.mark.parametrize("embedding", ["!", "AAA=", "AAAA", ""])
def test_a_damaged_embedding_is_made_anew(tmp_path, encoder, embedding):
  base = KnowledgeBase.create(tmp_path / "kb", PLANTS, language="en", encoder=encoder)
  base.feedback(ASKED, useful="oak")
  base.feedback("another question", useful="fern")
  path = tmp_path / "kb" / use_memory.FILE
  asked = base._folder.newest().embed(ASKED)
  similarity = base._folder.memory.newest().recall("x", base._folder.newest(), question_E=asked)
  line, _, rest = path.read_text().partition("\n")
  path.write_text(json.dumps({**json.loads(line), "embedding": embedding}) + "\n" + rest)
  opened = KnowledgeBase(base.path)
  assert ASKED in [hit.useful_for for hit in opened.search(ASKED, by="encoder", k=99)]
  found = opened._folder.memory.newest().recall("x", opened._folder.newest(), question_E=asked)
  np.testing.assert_allclose(found.similarity_N, similarity.similarity_N, atol=1e-6)


@pytest.mark.parametrize("asked", ["Caf\u00e9 Stra\u00dfe", "\u0391\u03a3 i\u0307"])
def test_a_question_is_the_same_in_other_letters(words, asked):
  words.feedback(asked, useful="oak")
  for form in ("NFC", "NFD"):
    for text in (asked, asked.upper(), asked.lower(), f" {asked}\t"):
      assert words.past_question(unicodedata.normalize(form, text)) is not None
  assert words.forget(unicodedata.normalize("NFD", asked.upper())) == 1


def test_one_question_said_often_stays_one_line(words, monkeypatch):
  monkeypatch.setattr(memory_file, "_SPARE_LINES", 4)
  for number in range(20):
    words.feedback("question", useful="oak", answer=str(number))
  assert content_of(words).count(b"\n") < 10
  assert [past.answers for past in words.past_questions()] == [("19",)]


@pytest.mark.parametrize(
  ("error", "others"), [(PermissionError("closed"), True), (FileNotFoundError(), False)]
)
def test_a_base_is_searched_where_what_was_asked_cannot_be_read(words, monkeypatch, error, others):
  """Of who may not read it, or while the file goes."""
  before = words.search("moss")
  words.feedback("moss", useful="oak")
  found, opens = words.search("moss"), plain_files.open_plain

  def refused(path, *args):
    if str(path).endswith(use_memory.FILE):
      raise error
    return opens(path, *args)

  with monkeypatch.context() as patched:
    patched.setattr(plain_files, "open_plain", refused)
    opened = KnowledgeBase(words.path)
    assert opened.search("moss") == before != found
    with pytest.raises(PermissionError) if others else contextlib.nullcontext():
      assert not opened.past_questions()
  assert opened.search("moss") == found, "it is there again"


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_past_questions_are_private_and_everything_else_follows_the_umask(tmp_path, umask):
  before = os.umask(umask)
  try:
    base = KnowledgeBase.create(tmp_path / "kb", PLANTS, language="en")
    base.feedback(ASKED, useful="oak")
    modes = [os.stat(tmp_path / "kb" / use_memory.FILE).st_mode & 0o777]
    base.feedback("another question", useful="oak")
    base.forget(ASKED)
  finally:
    os.umask(before)
  files = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "kb").rglob("*.*")}
  assert [*modes, files.pop(use_memory.FILE)] == [0o600, 0o600]
  assert {*files.values()} == {0o666 & ~umask}


def test_a_deletion_reads_and_writes_only_what_was_said_of_it(words, monkeypatch):
  for number in range(20):
    words.feedback(f"question {number}", useful="oak" if number else "fern")
  words.feedback("question 3", useful="moss")
  other = KnowledgeBase(words.path)
  other.past_questions()
  words.delete("rock 1")  # the first change looks for what a killed process left
  path = os.path.join(words.path, use_memory.FILE)
  before, content = os.stat(path), content_of(words)
  memory = words._folder.memory.newest()
  words.delete("rock 2")
  assert content_of(words) == content and words._folder.memory.newest() is memory
  read = []
  monkeypatch.setattr(os, "pread", lambda *how: read.append(how[1]) or READ(*how))
  words.delete("fern")
  words.delete("moss")
  monkeypatch.undo()
  assert sum(read) < len(content) / 4 and os.stat(path).st_ino == before.st_ino
  after = content_of(words)
  kept = [
    line if b'"question 0"' not in line and b'"question 3"' not in line else b" " * len(line)
    for line in content.splitlines(keepends=True)
  ]
  kept = b"".join(line if line.strip() else line[:-1] + b"\n" for line in kept)
  assert after.startswith(kept) and after.count(b'"question 3"') == 1
  assert b'"question 0"' not in after and b'"moss"' not in after
  expected = [(f"question {number}", ["oak"]) for number in range(19, 0, -1)]
  for base in (words, other, KnowledgeBase(words.path)):
    past = {one.question: [each.id for each in one.useful] for one in base.past_questions()}
    assert past == dict(expected), "also in a process that had read it before"
    assert base._folder.memory.newest().trial("question 3") is None
    recall = base._folder.memory.newest().recall("question", words._folder.newest())
    assert recall.earned(1.0, by="words") == use_memory.Earned()
  words.compact(purge=True)
  assert b"  " not in content_of(words) and len(words.past_questions()) == 19
  assert other.past_questions() == words.past_questions()


READ = os.pread


@pytest.mark.parametrize("way", ["forget", "delete"])
def test_what_a_killed_process_did_not_erase_is_gone_and_erased_by_the_next(
  words, monkeypatch, way
):
  for number in range(3):
    words.feedback(f"question {number}", useful=["oak", "fern"] if number else "oak")
  other = KnowledgeBase(words.path)
  assert len(other.past_questions()) == 3
  monkeypatch.setattr(memory_file.MemoryFile, "_erase", lambda _: None)
  words.forget("question 0") if way == "forget" else words.delete("oak")
  monkeypatch.undo()
  assert b'"question 0"' in content_of(words)
  for base in (other, KnowledgeBase(words.path)):
    assert {past.question for past in base.past_questions()} == {"question 1", "question 2"}
  other.feedback("question 4", useful="fern")
  content = content_of(words)
  assert b"question 0" not in content and (b'"oak"' in content) == (way == "forget")
  opened = KnowledgeBase(words.path)
  assert opened.past_questions() == other.past_questions() == words.past_questions()
  assert len(opened.past_questions()) == 3


@pytest.mark.parametrize("share", [0.0, 0.3, 0.97, 1.0, 1.1])
def test_a_kill_in_the_middle_of_an_erasure_leaves_no_word_of_the_question(
  words, monkeypatch, share
):
  words.feedback("question of the moss", useful="oak")
  words.feedback("another one", useful=["oak", "fern"])
  path = os.path.join(words.path, use_memory.FILE)
  lines = [line for line in content_of(words).splitlines() if b"question of the moss" in line]
  assert len(lines) == 2, "with its trial"
  monkeypatch.setattr(memory_file.MemoryFile, "_erase", lambda _: None)
  words.forget("question of the moss")
  monkeypatch.undo()
  content = content_of(words)
  for part, line in enumerate(lines):
    size = int(len(line) * min(max(share - part, 0), 1))
    content = content.replace(line, b" " * size + line[size:])
  pathlib.Path(path).write_bytes(content)
  opened = KnowledgeBase(words.path)
  content = content_of(words)
  assert b"moss" not in content and b"oak" in content
  assert [past.question for past in opened.past_questions()] == ["another one"]
  words.feedback("another one", not_useful="moss")
  (past,) = KnowledgeBase(words.path).past_questions()
  assert {one.id for one in past.judged} == {"oak", "fern", "moss"}


def test_a_trial_ranks_passages_of_the_same_score_as_a_search_does(tmp_path):
  texts = [{"id": id, "text": "The same words."} for id in "zyxwvutsrqponmlkjihgfedcba"]
  base = KnowledgeBase.create(tmp_path / "kb", texts, language="en")
  best = base.search("same words", k=10)
  for question in ("same words", "words same"):
    base.feedback(question, useful=("z", 0), not_useful=("y", 0))
  assert "z" not in [hit.id for hit in best] and best[0].id == "a"
  gains = base._folder.memory.newest().trial("words same").gains["words"]
  assert gains[0] == 1, "from no place among ten to the first"


def test_a_trial_keeps_how_far_the_best_stood_out_from_the_mean(base):
  base.feedback(ASKED, useful="oak")
  by = base.commit.settings.ranking
  kept = base._folder.memory.newest().trial(ASKED).gains[by][-1]
  base.forget(ASKED)
  assert kept == pytest.approx(spread(base, ASKED), rel=1e-3)


@pytest.mark.parametrize("width", [64, 100])
def test_of_many_questions_only_the_nearest_are_compared(width, monkeypatch):
  monkeypatch.setattr(question_similarity, "_COMPARED", 40)
  monkeypatch.setattr(question_similarity, "_ALL", 400)
  draw = np.random.default_rng(0)
  vectors_NxE, asked_E = draw.normal(size=(2, 500, width))[0], draw.normal(size=width)
  vectors_NxE[100:300] = 3 * asked_E  # of a question that was said again and again
  vectors_NxE[:20] += 2 * asked_E
  embeddings = question_similarity.Embeddings(width)
  for row, vector_E in enumerate(vectors_NxE):
    embeddings[row] = vector_E
  live_N = np.ones(500, bool)
  live_N[100:299] = False
  similarity_N = embeddings.first(500).similarity(asked_E, live_N)
  lengths_N = np.linalg.norm(vectors_NxE, axis=1) * np.linalg.norm(asked_E)
  cosine_N = vectors_NxE @ asked_E / lengths_N
  near = [*range(20), 299]
  np.testing.assert_allclose(similarity_N[near], cosine_N[near], rtol=1e-5)
  assert 40 <= np.count_nonzero(similarity_N) < 60 and not similarity_N[~live_N].any()
  few_N = embeddings.first(400).similarity(asked_E, live_N[:400])
  np.testing.assert_allclose(few_N, cosine_N[:400], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_similarity_by_words_does_not_depend_on_history(seed):
  draw = np.random.default_rng(seed)
  asked = [frozenset(draw.choice(list("abcdefghij"), draw.integers(5))) for _ in range(60)]
  grown, kept = Words(), list(range(60))
  for number, terms in enumerate(asked):
    grown.add(terms)
    grown.similarity("ab")
    if number % 3 == 2:
      grown.remove(kept.pop(int(draw.integers(len(kept) - 60 + number + 1))))
  made = Words()
  for number in kept:
    made.add(asked[number])
  np.testing.assert_array_equal(grown.similarity("aciz")[kept], made.similarity("aciz"))


def test_a_trial_is_of_what_was_said_last_and_of_what_is_there(words):
  questions = [f"which plant of the shade{'?' * n}" for n in range(1, 15)]
  for question in questions:
    words.feedback(question, useful="fern")
  memory = words._folder.memory.newest()
  assert all(memory.trial(key).gains["words"][-1] > 0 for key in memory.records)
  for question in questions[:7]:
    words.feedback(question, not_useful="fern")
  words.update([{**PLANTS[1], "text": "It was another text. It is green."}])
  for number in range(40):
    words.feedback(f"question {number}", useful="oak")
  memory = words._folder.memory.newest()
  opened = KnowledgeBase(words.path)._folder.memory.newest()
  for key in memory.records:
    assert memory.trial(key) == opened.trial(key)
  assert not memory.trial(questions[0]).gains and not memory.trial(questions[9]).gains
  assert len(memory.untested(words.num_passages)) < 30, "those that cannot be tried stop nothing"
