"""The probability that an answer is among the hits."""

import dataclasses
import functools
import json
import pathlib
import pickle
import shutil

import numpy as np
import pytest

from realm_jax.evaluation import resampling
from realm_jax.jobs.knowledge_base import questions as verbs
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase, Opening
from realm_jax.knowledge_base.learning import search
from realm_jax.knowledge_base.store import commits, hits
from realm_jax.knowledge_base.store.query import Query
from realm_jax.web.listening import LimitSettings

WORDS = [f"{a}{b}ing" for a in "bdfgklmprt" for b in ("al", "en", "or", "ush")]
KNOWN, UNKNOWN = "tell me of taling and the rest", "tell me of something else entirely"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """A base that was asked for documents that it has, and for others."""
  folder = tmp_path_factory.mktemp("answerability")
  documents = [{"id": word, "text": f"Something about {word}."} for word in WORDS]
  base = KnowledgeBase.create(folder / "kb", documents, language="en")
  assert base.search(KNOWN).answerable is None
  with pytest.raises(ValueError, match=r"min_answerable=0\.5, but nothing has learned"):
    base.search(KNOWN, min_answerable=0.5)
  asked = [
    {"question": f"who knows {word} number {n}", "answer": word} for n in range(2) for word in WORDS
  ]
  asked += [{"question": f"who knows something number {n}", "answer": "nowhere"} for n in range(60)]
  file = folder / "questions.jsonl"
  file.write_text("\n".join(map(json.dumps, asked)))
  base.train(questions=file)
  return base, file


@pytest.fixture
def copied(tmp_path, trained):
  return KnowledgeBase(shutil.copytree(trained[0].path, tmp_path / "kb"))


def test_hits_know_whether_they_have_an_answer(trained):
  base, _ = trained
  known, unknown = base.search(KNOWN), base.search(UNKNOWN)
  assert known[0].id == "taling" and len(unknown) == 5
  assert known.answerable > 0.8 and unknown.answerable < 0.2
  assert base.search(KNOWN, k=1).answerable <= known.answerable
  assert base.search("zzz").answerable == 0  # nothing is found
  assert pickle.loads(pickle.dumps(known)).answerable == known.answerable
  assert hits.likely(known.answerable) in repr(known)
  words = [hits.likely(p) for p in (1, 0.7, 0.69, 0.1, 0)]
  assert words == [
    *("almost certainly (100 %)", "probably (70 %)", "perhaps (69 %)"),
    *("probably not (10 %)", "hardly (0 %)"),
  ]


def test_below_a_probability_nothing_is_returned_and_nothing_answered(trained):
  base, _ = trained
  assert base.search(KNOWN, min_answerable=0.5)[0].id == "taling"
  refused = base.search(UNKNOWN, min_answerable=0.5)
  assert len(refused) == 0 and refused.answerable == base.search(UNKNOWN).answerable
  generate = lambda question, hits: hits[0].id  # noqa: E731
  assert base.answer(UNKNOWN, generate=generate).text
  assert base.answer(UNKNOWN, generate=generate, min_answerable=0.5).text == ""
  assert base.answer(KNOWN, generate=generate, min_answerable=0.5).text == "taling"


def test_the_command_line_and_the_api_say_the_same(trained, capsys):
  base, _ = trained
  verbs.search(Opening(base.path), Query(UNKNOWN, min_answerable=0.5))
  assert capsys.readouterr().out.startswith("(nothing found)\n(an answer is hardly (")
  testclient = pytest.importorskip("fastapi.testclient")
  from realm_jax.web.knowledge_base.pages import make_app

  generate = lambda question, hits: "taling [1]"  # noqa: E731
  app = make_app(base, edit_token=None, limits=LimitSettings(), generate=generate)
  client = testclient.TestClient(app, base_url="http://localhost")
  for question, number in ((KNOWN, 1), (UNKNOWN, 0)):
    asked = {"q": question, "min_answerable": 0.5, "k": 1}
    answer = client.get("/api/search", params=asked).json()
    assert len(answer["hits"]) == number
    assert answer["answerable"] == base.search(question, k=1).answerable
    answer = client.get("/api/answer", params=asked).json()
    assert bool(answer["text"]) == bool(number)
    assert answer["answerable"] == base.search(question, k=1).answerable
    for path in ("/", "/answer"):
      page = client.get(path, params=asked).text
      assert 'name="min_answerable"' in page and ("<article" in page) == bool(number)
    assert client.get("/", params={**asked, "min_answerable": "2"}).status_code == 422


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_what_is_no_probability_is_refused(trained, value):
  with pytest.raises(ValueError, match="give at least 0 and at most 1"):
    trained[0].search(KNOWN, min_answerable=value)


def test_it_stays_with_the_folder_and_evaluation_shows_it(trained):
  base, file = trained
  opened = KnowledgeBase(base.path)
  assert opened.search(KNOWN).answerable == base.search(KNOWN).answerable
  table = repr(opened.evaluate(file))
  assert "by hits.answerable: AUROC 1.000" in table and "calibration error 0." in table


@pytest.mark.parametrize("damage", ["", "{}", "[1]", "null", '{"weights": [1e999]}', "\xff"])
def test_a_damaged_file_leaves_searches_without(trained, tmp_path, damage):
  base, _ = trained
  (file,) = pathlib.Path(base.path).glob("models/*/answerability.json")
  content = file.read_text()
  try:
    file.write_bytes(damage.encode("latin-1"))
    hits = KnowledgeBase(base.path).search(KNOWN)
    assert hits[0].id == "taling" and hits.answerable is None
    fields = json.loads(content)
    for wrong in ({"weights": fields["weights"][1:]}, {"means": None}, {"encoder": "another"}):
      file.write_text(json.dumps({**fields, **wrong}))
      assert KnowledgeBase(base.path).search(KNOWN).answerable is None
  finally:
    file.write_text(content)


def test_all_documents_may_be_deleted(copied):
  copied.delete(WORDS)
  hits = copied.search(KNOWN)
  assert len(hits) == 0 and hits.answerable == 0


def test_when_documents_change_much_it_asks_to_be_learned_again(copied, trained):
  copied.add([{"id": "one", "text": "Another text."}])
  assert copied.search(KNOWN).answerable is not None
  copied.add([{"id": str(n), "text": f"Another text {n}."} for n in range(20)])
  assert copied.search(KNOWN).answerable is None and copied.evaluate(trained[1]).answerable is None
  with pytest.raises(ValueError, match="knew 40 passages, and there are 61; train again"):
    copied.search(KNOWN, min_answerable=0.5)


def test_of_questions_unlike_those_it_learned_from_the_best_score_tells(trained):
  base, file = trained
  snapshot, memory = base._folder.newest(), base._folder.memory.newest()
  model = base._folder.answerability(snapshot)
  asked = (past.question for past in base.past_questions(count=200))
  features_of = functools.partial(search.with_features, snapshot, k=5, memory=memory)
  found = (features_of(one, leave_out=True)[2] for one in asked)
  like = next(features for features in found if model.knows(features))
  *_, unlike = features_of("the taling of zebras in Antarctica")
  assert model.knows(like) and not model.knows(unlike)
  other = dataclasses.replace(model, weights=tuple(0 for _ in model.weights))
  assert other.probability(unlike, 5) == model.probability(unlike, 5)
  assert other.probability(like, 5) == 0.5 != model.probability(like, 5)
  assert model.probability(unlike, 5) > model.probability(0 * unlike - 9, 5), "a better score"
  evaluation = base.evaluate(file)
  assert evaluation.unlike < 20 and "questions unlike" in repr(evaluation)


def test_a_copy_for_readers_has_neither_questions_nor_what_needs_them(trained):
  base, _ = trained
  names = commits.needed(base.path, base.commit)
  assert base.commit.settings.answerability and names
  assert not [name for name in names if "answerability" in name or "memory" in name]


def test_questions_that_are_all_answered_teach_nothing(tmp_path):
  documents = [{"id": word, "text": f"Something about {word}."} for word in WORDS]
  base = KnowledgeBase.create(tmp_path / "kb", documents, language="en")
  file = tmp_path / "questions.jsonl"
  asked = [{"question": f"{word} number {n}", "answer": word} for n in range(3) for word in WORDS]
  file.write_text("\n".join(map(json.dumps, asked)))
  base.train(questions=file)
  assert base.search(KNOWN).answerable is None


def test_without_time_it_is_not_learned(trained, copied):
  assert copied.search(KNOWN).answerable is not None
  copied.train(questions=trained[1], minutes=1e-9)
  assert copied.search(KNOWN).answerable is None


@pytest.mark.parametrize(
  "probabilities, happened, auroc, error",
  [
    ([0.1, 0.4, 0.6, 0.9], [0, 0, 1, 1], 1.0, 0.25),
    ([0.9, 0.1], [0, 1], 0.0, 0.9),
    ([0.5, 0.5, 0.5, 0.5], [0, 1, 1, 0], 0.5, 0.0),
    ([1.0, 0.0], [1, 0], 1.0, 0.0),
  ],
)
def test_figures_of_probabilities(probabilities, happened, auroc, error):
  values, truth = np.array(probabilities), np.array(happened, bool)
  assert resampling.auroc(values, truth) == pytest.approx(auroc)
  assert resampling.calibration_error(values, truth) == pytest.approx(error)
