"""What past questions are worth: memory of use, adapter and tower, on real questions.

Past questions arrive in a random order that is always the same; each has its answers, and the best
passage that has one is remembered and tried, as `KnowledgeBase.train` does. Adapter and tower learn
from the same questions. Of Cranfield, four fifths of the queries are remembered with their relevant
documents, and the others are asked, five times. Of a catalogue and of questions by template each is
about another thing, so no past question helps. Differences are of the same questions without
anything learned, with paired 95 % bootstrap intervals and the numbers of questions won and lost.

  python benchmarks/learning_from_use.py --data=DATA --encoder=MINILM --directory=scratch
  python benchmarks/learning_from_use.py ... --learners memory adapter tower --sets WebQuestions
  python benchmarks/learning_from_use.py ... --draw=docs/images/learning_from_use.png
  python benchmarks/learning_from_use.py ... --answerable   # whether it is known what was found
  python benchmarks/learning_from_use.py ... --half   # embeddings in half precision

DATA has the first 60 words of 12,000 leads of English Wikipedia to search, and WebQuestions,
CuratedTREC, SQuAD and Cranfield to ask (`open_data`). Knowledge bases, embeddings of questions and
figures stay in --directory; `--draw` draws the figures that are there.
"""

import argparse
import dataclasses
import functools
import itertools
import json
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import matplotlib.figure
import measuring
import numpy as np
from measuring import read

from realm_jax.data.answers import occurs
from realm_jax.data.questions import Question, read_judgements, read_queries, read_questions
from realm_jax.evaluation import document_ranking, resampling
from realm_jax.foundations import progress
from realm_jax.index.words.bm25 import kth_best
from realm_jax.knowledge_base.encoders.models import Encoder
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.learning import evaluation, feedback, search, trials
from realm_jax.knowledge_base.learning import query_training as learning
from realm_jax.knowledge_base.learning.adapter import compared
from realm_jax.knowledge_base.learning.answerability_training import learn_answerability
from realm_jax.knowledge_base.learning.past_questions import JudgedPassage, PastQuestion
from realm_jax.knowledge_base.learning.use_memory import Memory
from realm_jax.knowledge_base.store.commits import Ranking
from realm_jax.knowledge_base.store.hits import Hit
from realm_jax.knowledge_base.store.snapshot import Snapshot
from realm_jax.models.encoder import query_encoder_program

_SIZES = (100, 400, 800, 1600)  # and all
_NEAR = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)
_FOLDS, _UNUSED = 5, 400  # questions that the settings were chosen by
_FIGURE_NAMES = ("first", "recall@5", "ndcg@10")
_DEPTH = 10
_LEADS, _LEAD_WORDS = 12_000, 60
_BATCH, _LENGTH_STEP = 32, 16  # of questions to embed
_TIMED = 300  # questions
FIGURES = "figures.jsonl"
_LEARNERS = ("memory", "adapter", "tower")
Search = Callable[..., list[Hit]]


@dataclasses.dataclass(frozen=True)
class Set:
  """Questions of one kind: those that are remembered, and others."""

  base: str
  past: Sequence[Question]
  asked: Sequence[Question]


class Scored(Snapshot):
  """Scores all passages for a question once, however often it is searched for."""

  def best(self, question, k, *, matching=None, by=None, exact=False, question_E=None, also=()):
    found = self._all_of(question, by)
    missing = np.setdiff1d(np.array([*also], np.intp), found.rows)  # those that share no word
    more = (missing, *(np.zeros(len(missing), np.float32) for _ in found[1:]))
    found = type(found)(*map(np.append, found, more))
    if matching is not None:
      kept = matching(found.rows)
      found = type(found)(*(each[kept] for each in found))
    is_other = np.isin(found.rows, [*also])
    k += np.count_nonzero(is_other)
    if k < len(found.rows):
      kept = (found.scores >= kth_best(found.scores, k)) | is_other
      found = type(found)(*(each[kept] for each in found))
    return found

  @functools.lru_cache(maxsize=4)  # noqa: B019
  def _all_of(self, question, by):
    question_E = self.embed and compared(self, self.embed(question))
    return super().best(question, len(self.live_N), by=by, question_E=question_E)


def embeddings_of(texts: Sequence[str], encoder: Encoder, path: str) -> dict[str, np.ndarray]:
  """Returns embeddings of questions, at least of these; they stay in a file."""
  known = {}
  if os.path.exists(path):
    with np.load(path) as file:
      known = dict(zip(file["texts"].tolist(), file["embeddings"], strict=True))
  # Those of similar length are embedded together.
  missing = sorted({*texts} - known.keys(), key=lambda text: (len(text), text))
  known |= zip(missing, embedded(encoder, missing), strict=True)
  if missing:
    with open(path, "wb") as file:
      np.savez(file, texts=[*known], embeddings=np.stack([*known.values()]))
  return known


def embedded(encoder: Encoder, texts: Sequence[str]) -> Iterator[np.ndarray]:
  program = query_encoder_program(encoder.description.dual_encoder)
  for first in progress.track(range(0, len(texts), _BATCH), what="batches of questions"):
    batch = texts[first : first + _BATCH]
    tokens = encoder.queries(batch, size=_BATCH, step=_LENGTH_STEP)
    yield from np.asarray(program(encoder.params, tokens), np.float32)[: len(batch)]


def texts(name: str, data: str) -> tuple[list[dict], int]:
  """Returns the documents of a base, and the words of a passage."""
  if name == "cranfield":
    found = ({**line, "id": line["_id"]} for line in read(f"{data}/cranfield/corpus.jsonl"))
    return [d for d in found if d["text"] or d["title"]], 100
  if name == "catalogue":
    return [*map(_device, range(len(_DEVICES) * len(_PARTS)))], 100
  if name == "squad":
    passages = [*read(f"{data}/squad_open/passages.jsonl.gz")]
    train = [passage for passage in passages if passage["split"] == "train"]
    return [p for p in passages if p["split"] != "train"] + train[::4], 200
  articles = read(f"{data}/corpus/enwiki_core_2015_lead4k.jsonl.gz")
  cut = ({**a, "text": " ".join(a["text"].split()[:_LEAD_WORDS])} for a in articles)
  kept = ({**a, "id": str(number)} for number, a in enumerate(cut) if a["text"])
  return [*itertools.islice(kept, _LEADS)], 100


def open_base(
  name: str, arguments: argparse.Namespace, questions: Sequence[str]
) -> tuple[Scored, Encoder]:
  """Returns a knowledge base, made if it is missing, that has embedded the questions."""
  path = os.path.join(arguments.directory, name)
  if not os.path.exists(path):
    documents, words = texts(name, arguments.data)
    KnowledgeBase.create(
      path, documents, language="en", encoder=arguments.encoder, passage_words=words
    )
  folder = KnowledgeBase(path)._folder
  snapshot = folder.newest()
  encoder = folder.encoder(snapshot.commit.settings.encoder)
  assert isinstance(encoder, Encoder), "a directory was given"
  embed = embeddings_of(questions, encoder, f"{path}.questions.npz").__getitem__
  return Scored(**{**fields_of(snapshot), "embed": embed}), encoder


def fields_of(snapshot: Snapshot) -> dict[str, Any]:
  return {field.name: getattr(snapshot, field.name) for field in dataclasses.fields(Snapshot)}


def ranked_by(snapshot: Scored, ranking: str) -> Scored:
  settings = dataclasses.replace(snapshot.commit.settings, ranking=ranking)
  return dataclasses.replace(
    snapshot, commit=dataclasses.replace(snapshot.commit, settings=settings)
  )


_DEVICES = (
  "alder birch cedar dogwood elm fir ginkgo hazel ironwood juniper katsura larch maple".split()
)
_PARTS = "battery screen keyboard charger hinge speaker camera antenna".split()
_PERSON = re.compile(r"\([^)]*\d{4}[^)]*\) (was|is) an? ")
_TEMPLATES = ("When was {} born?", "What was the profession of {}?", "Where was {} born?")


def _device(number: int) -> dict:
  device, part = divmod(number, len(_PARTS))
  name = f"{_DEVICES[device].title()} {_PARTS[part]}"
  return {"id": str(number), "title": name, "text": f"The {name} has the code c{number}q."}


def question_sets(data: str) -> dict[str, Set]:
  """Returns the sets; what is asked is no part of what settings were chosen by."""

  def questions(name: str) -> list[Question]:
    return read_questions(f"{data}/qa/{name}.jsonl")

  def mixed(questions: Sequence[Question]) -> list[Question]:
    return random.Random(0).sample(questions, len(questions))

  trec = mixed(questions("curatedtrec/large2470_train"))
  squad = mixed(read_questions(f"{data}/squad_open/dev.jsonl.gz"))
  past = mixed(questions("webquestions/trainmodel"))
  codes = [
    _question(f"What is the code of the {d['title']}?", d) for d in texts("catalogue", data)[0]
  ]
  people = [d for d in texts("leads", data)[0] if _PERSON.search(d["text"])]
  asked = mixed(
    [_question(_TEMPLATES[number % 3].format(d["title"]), d) for number, d in enumerate(people)]
  )
  return {
    "WebQuestions": Set("leads", past, questions("webquestions/test")),
    "CuratedTREC": Set("leads", trec[_UNUSED:], questions("curatedtrec/dpr_test694")),
    "SQuAD-open": Set("squad", squad[:3000], squad[4000:5500]),
    "templates": Set("leads", asked[:400], asked[400:800]),
    "catalogue": Set("catalogue", codes[::2], codes[1::2]),
    "WebQuestions, with templates": Set("leads", mixed([*past, *asked[:400]]), asked[400:800]),
  }


def _question(text: str, document: Mapping[str, str]) -> Question:
  """Returns a question that one document answers: by how its text begins."""
  return Question(id="", text=text, answers=(document["text"][:60],), regex=False)


def has_answer(hits: Sequence[Hit], question: Question) -> bool:
  return any(occurs(hit.text, question.answers, regex=question.regex) for hit in hits)


def figures(questions: Sequence[Question], searches: Sequence[Search]) -> np.ndarray:
  """Returns of each search whether the first passage and one of five have an answer, and nDCG@10 of
  the first passage that has one, `[S, Q, 3]`."""
  return np.array(
    [
      [_figures(search(question.text, _DEPTH), question) for search in searches]
      for question in progress.track(questions, what="questions")
    ],
    float,
  ).transpose(1, 0, 2)


def _figures(hits: Sequence[Hit], question: Question) -> tuple[bool, bool, float]:
  place = next((place for place, hit in enumerate(hits) if has_answer([hit], question)), _DEPTH)
  return place < 1, place < 5, 1 / np.log2(place + 2) if place < _DEPTH else 0.0


def memory_of(
  records: Sequence[PastQuestion], snapshot: Snapshot, *, answered: bool = True
) -> Memory:
  """Returns a memory in which each question was tried."""
  memory = Memory(one for one in records if one.useful or not answered)
  for past in progress.track(memory.untested(snapshot.num_passages), what="trials"):
    memory.add_trial(past.key, trials.test(past, snapshot, memory))
  return memory


def spoiled(records: Sequence[PastQuestion], snapshot: Snapshot) -> list[PastQuestion]:
  """Returns records of which a tenth have random passages instead of theirs."""
  draw, rows, records = random.Random(1), range(len(snapshot.live_N)), [*records]
  for number in sorted(draw.sample(range(len(records)), len(records) // 10)):
    hits = [snapshot.hit(draw.choice(rows)) for _ in records[number].useful or (None,)]
    useful = tuple(map(JudgedPassage.of, hits))
    records[number] = dataclasses.replace(records[number], useful=useful)
  return records


def remembered(questions: Sequence[Question], snapshot: Snapshot) -> list[PastQuestion]:
  pasts = [PastQuestion(question=q.text, answers=q.answers, regex=q.regex) for q in questions]
  return [feedback.answered(snapshot, one) for one in progress.track(pasts, what="past")]


@dataclasses.dataclass(frozen=True)
class Report:
  """Prints figures, and keeps them to be drawn."""

  name: str
  ranking: Ranking
  path: str

  def __call__(self, learner: str, row: object, after: np.ndarray, before: np.ndarray) -> None:
    """Reports the figures `[Q, 3]` of questions."""
    for number, figure in enumerate(_FIGURE_NAMES):
      self.of_figure(learner, row, after[:, number], before[:, number], figure)

  def of_figure(
    self, learner: str, row: object, after: np.ndarray, before: np.ndarray, figure: str
  ) -> None:
    compared = resampling.compare(after, before)
    low, high = compared.interval
    shown = f"{compared.second:.3f} to {compared.first:.3f}"
    shown += f" ({compared.difference:+.3f}, {low:+.3f} to {high:+.3f})"
    shown += f", won {np.sum(after > before)}, lost {np.sum(after < before)}"
    print(f"{self.name} | {self.ranking} | {learner} | {row} | {figure} | {shown}", flush=True)
    line = {"set": self.name, "ranking": self.ranking, "learner": learner, "row": row}
    line |= {"before": compared.second, "after": compared.first, "interval": compared.interval}
    with open(self.path, "a") as file:
      file.write(json.dumps({**line, "figure": figure}) + "\n")

  def by_similarity(
    self, learner: str, near: np.ndarray, after: np.ndarray, before: np.ndarray
  ) -> None:
    for low, high in itertools.pairwise(_NEAR):
      if (some := (near >= low) & (near < high)).any():
        row = f"nearest past question {low} to {min(high, 1)}: {some.sum():,}"
        self(learner, row, after[some], before[some])


def sizes_of(one: Set) -> list[int]:
  sizes = [size for size in _SIZES if size < len(one.past)] if one.base == "leads" else []
  return [*sizes, len(one.past)]


def measure_memory(one: Set, snapshot: Scored, report: Report) -> None:
  records = remembered(one.past, snapshot)
  memories = [memory_of(records[:size], snapshot) for size in sizes_of(one)]
  searches = [
    functools.partial(search.hits, snapshot, memory=memory)
    for memory in (None, *memories, memory_of(spoiled(records, snapshot), snapshot))
  ]
  before, *after, wrong = figures(one.asked, searches)
  for size, some in zip(sizes_of(one), after, strict=True):
    report("memory", size, some, before)
  report("memory", "all, a tenth of them wrong", wrong, before)
  near = nearest(one.asked, [past.question for past in records if past.useful], snapshot)
  report.by_similarity("memory", near, after[-1], before)


def measure_trained(
  one: Set, snapshot: Scored, encoder: Encoder, learner: str, reports: Sequence[Report]
) -> None:
  """Measures adapters or towers that learned from questions alone, by each ranking of a report."""
  trained = [snapshot]
  for size in sizes_of(one):
    if learner == "adapter":
      adapter = learning.adapt(snapshot, one.past[:size], seconds=1e9)
      trained.append(dataclasses.replace(snapshot, adapt=adapter))
    else:
      tower = learning.tune(encoder, snapshot, one.past[:size], seconds=1e9)
      known = [question.text for question in one.asked]
      embed = dict(zip(known, embedded(tower, known), strict=True)).__getitem__
      trained.append(dataclasses.replace(snapshot, embed=embed))
  near = nearest(one.asked, [question.text for question in one.past], snapshot)
  for report in reports:
    searches = [functools.partial(search.hits, each, by=report.ranking) for each in trained]
    before, *after = figures(one.asked, searches)
    for size, some in zip(sizes_of(one), after, strict=True):
      report(learner, size, some, before)
    report.by_similarity(learner, near, after[-1], before)


def measure_answerable(one: Set, snapshot: Scored) -> Iterator[tuple[str, str]]:
  """Yields rows: after how many questions, and how well it is known what five passages answer."""
  records = remembered(one.past, snapshot)
  for size in (100, 400, len(records)):
    memory = memory_of(records[:size], snapshot, answered=False)
    model = learn_answerability(snapshot, one.past[:size], memory=memory, seconds=1e9)
    if model is None:
      yield f"{size:,}", "too few"
      continue
    known, unlike = evaluation.answerable(snapshot, one.asked, memory, model)
    shares = (
      f"{n} {value:.3f} ({low:.3f} to {high:.3f})"
      for n, (value, (low, high)) in (known or {}).items()
    )
    yield f"{size:,}", ", ".join([*shares, f"{unlike} unlike"])
  plain = Snapshot(**fields_of(snapshot))
  without, known = measuring.cpu_in_turns(
    [question.text for question in one.asked[:_TIMED]],
    lambda text: search.hits(plain, text, 5, memory=memory),
    lambda text: search.with_features(plain, text, 5, memory=memory),
  )
  yield "a search, in ms of CPU", f"{without:.1f} without, {known:.1f} with"


def measure_half(one: Set, snapshot: Scored) -> Iterator[tuple[str, str]]:
  """Yields what embeddings of passages in half precision would change of searches by encoder."""
  passages_NxE = np.concatenate([segment.embeddings() for segment in snapshot.segments])
  half_NxE = passages_NxE.astype(np.float16)
  assert snapshot.embed is not None, "there is an encoder"
  questions_QxE = np.stack([snapshot.embed(question.text) for question in one.asked])
  five_Qx5, five_by_half_Qx5 = (
    np.argsort(-(questions_QxE @ stored_NxE.T), axis=1, kind="stable")[:, :5]
    for stored_NxE in (passages_NxE, half_NxE.astype(np.float32))
  )

  before, after = (
    [
      has_answer([snapshot.hit(row) for row in rows], question)
      for question, rows in zip(one.asked, rows_Qx5.tolist(), strict=True)
    ]
    for rows_Qx5 in (five_Qx5, five_by_half_Qx5)
  )
  other = (np.sort(five_Qx5, axis=1) != np.sort(five_by_half_Qx5, axis=1)).any(axis=1)
  yield "other five passages", f"{other.sum():,} of {len(other):,} questions"
  yield "an answer among them or no longer", f"{np.not_equal(before, after).sum():,}"
  yield "MiB", f"{passages_NxE.nbytes / 2**20:.1f}, {half_NxE.nbytes / 2**20:.1f} in half precision"
  single, half = measuring.cpu_in_turns(
    questions_QxE[:_TIMED],
    lambda question_E: passages_NxE @ question_E,
    lambda question_E: half_NxE.astype(np.float32) @ question_E,
  )
  yield "scores of all, in ms of CPU", f"{single:.1f}, {half:.1f} from half precision"


def nearest(questions: Sequence[Question], past: Sequence[str], snapshot: Scored) -> np.ndarray:
  """Returns the similarity of the past question that is most similar to each question."""
  memory = Memory(PastQuestion(question=text) for text in past)
  by_words = snapshot.commit.settings.ranking == "words"
  embed = snapshot.embed or (lambda _: None)
  return np.array(
    [
      memory.recall(
        one.text, snapshot, question_E=None if by_words else embed(one.text)
      ).similarity_N.max()
      for one in questions
    ]
  )


def measure_cranfield(data: str, snapshot: Scored) -> Iterator[tuple[str, object, np.ndarray]]:
  """Yields learners, how many of the other folds they learned from, and nDCG@10 of the queries."""
  judgements = read_judgements(f"{data}/cranfield/qrels/test.tsv")
  queries = cranfield_queries(data)
  fold = {
    q.id: number % _FOLDS for number, q in enumerate(random.Random(0).sample(queries, len(queries)))
  }
  places = {id for id in {d for of in judgements.values() for d in of} if snapshot.find([id])[0]}
  records = {}
  for query in progress.track(queries, what="past"):
    right = [id for id, grade in judgements[query.id].items() if grade > 0 and id in places]
    judged = feedback.judged(snapshot, query.text, right)
    records[query.id] = PastQuestion(question=query.text, useful=judged)

  def measured(searches: Mapping[int, Search]) -> np.ndarray:
    run = {}
    for query in progress.track(queries, what="queries"):
      run |= evaluation.ranked(searches[fold[query.id]], [query])
    return document_ranking.document_scores(run, judgements, queries, recall_at=[20])["ndcg@10"]

  def remembering(number: int, wrong: bool = False) -> np.ndarray:
    searches = {}
    for asked in range(_FOLDS):
      learned = {(asked + more) % _FOLDS for more in range(1, number + 1)}
      some = [records[q.id] for q in queries if fold[q.id] in learned]
      memory = memory_of(spoiled(some, snapshot) if wrong else some, snapshot)
      searches[asked] = functools.partial(search.hits, snapshot, memory=memory)
    return measured(searches)

  yield "", 0, measured(dict.fromkeys(range(_FOLDS), functools.partial(search.hits, snapshot)))
  for number in range(_FOLDS - 1, 0, -1):
    yield "memory", f"{number} folds", remembering(number)
  yield "memory", "4 folds, a tenth of them wrong", remembering(_FOLDS - 1, wrong=True)


def cranfield_queries(data: str) -> list[Question]:
  judgements = read_judgements(f"{data}/cranfield/qrels/test.tsv")
  queries = read_queries(f"{data}/cranfield/queries.jsonl", judgements)
  return [query for query in queries if any(judgements[query.id].values())]


def draw(path: str, output: str) -> None:
  """Draws recall@5 of WebQuestions by the questions that were learned from."""
  figures: dict[tuple, dict] = {}
  for one in read(path):
    is_drawn = one["figure"] == "recall@5" and isinstance(one["row"], int)
    if one["set"] == "WebQuestions" and is_drawn:
      figures.setdefault((one["ranking"], one["learner"]), {})[one["row"]] = one
  rankings = [r for r in ("encoder", "fused") if any(ranking == r for ranking, _ in figures)]
  figure = matplotlib.figure.Figure(figsize=(9, 3.6), layout="constrained")
  panels = figure.subplots(1, len(rankings), sharey=True, squeeze=False).flat
  for axes, ranking in zip(panels, rankings, strict=True):
    for learner in _LEARNERS:
      if found := figures.get((ranking, learner)):
        sizes = sorted(found)
        start = found[sizes[0]]["before"]
        shares = [start, *(found[size]["after"] for size in sizes)]
        low, high = zip((0, 0), *(found[size]["interval"] for size in sizes), strict=True)
        axes.plot([0, *sizes], shares, marker="o", label=learner)
        axes.fill_between([0, *sizes], start + np.array(low), start + np.array(high), alpha=0.15)
    axes.set_title(f"WebQuestions, {ranking}", fontsize=10)
    axes.set_xlabel("questions learned from", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)
  panels[0].set_ylabel("an answer is among five passages", fontsize=8)
  panels[0].legend(fontsize=8)
  figure.savefig(output, dpi=110)


def main() -> None:
  parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
  parser.add_argument("--data")
  parser.add_argument("--encoder", help="directory of a sentence encoder")
  parser.add_argument("--directory", required=True, help="where knowledge bases are kept")
  parser.add_argument("--answerable", action="store_true", help="measure hits.answerable")
  parser.add_argument("--half", action="store_true", help="measure half precision")
  parser.add_argument("--draw", help="PNG to draw the figures of WebQuestions in")
  parser.add_argument("--learners", nargs="+", default=["memory"], choices=_LEARNERS)
  parser.add_argument("--rankings", nargs="+", default=["encoder", "fused", "words"])
  parser.add_argument("--sets", nargs="+")
  arguments = parser.parse_args()
  path = os.path.join(arguments.directory, FIGURES)
  if arguments.draw:
    draw(path, arguments.draw)
    return
  sets = question_sets(arguments.data)
  for name in arguments.sets or [*sets, "Cranfield"]:
    measure(name, sets.get(name), arguments, path)


def measure(name: str, one: Set | None, arguments: argparse.Namespace, path: str) -> None:
  """Measures what is asked for with the questions of a set; None means Cranfield."""
  asked = cranfield_queries(arguments.data) if one is None else [*one.past, *one.asked]
  base = "cranfield" if one is None else one.base
  opened, encoder = open_base(base, arguments, [question.text for question in asked])
  reports = [Report(name, ranking, path) for ranking in arguments.rankings]
  for report in reports:
    snapshot = ranked_by(opened, report.ranking)
    if one is None:
      (_, _, before), *rows = measure_cranfield(arguments.data, snapshot)
      for learner, row, after in rows:
        report.of_figure(learner, row, after, before, "ndcg@10")
    elif arguments.answerable or arguments.half:
      for row, figures in (measure_half if arguments.half else measure_answerable)(one, snapshot):
        print(f"{name} | {report.ranking} | {row} | {figures}", flush=True)
    elif "memory" in arguments.learners:
      measure_memory(one, snapshot, report)
  if one is not None and not (arguments.answerable or arguments.half):
    for learner in {*arguments.learners} - {"memory"}:
      trained_rankings = [report for report in reports if report.ranking != "words"]
      measure_trained(one, opened, encoder, learner, trained_rankings)


if __name__ == "__main__":
  main()
