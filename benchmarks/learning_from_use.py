"""What past questions are worth: memory of use, by encoder, fused and words, on real questions.

Past questions arrive in a random order that is always the same; each has its answers, and the best
passage that has one is remembered, as `KnowledgeBase.feedback` does. Of Cranfield, four fifths of
the queries are remembered with their relevant documents, and the others are asked, five times.
Differences are of the same questions without memory, with paired 95 % bootstrap intervals.

  python benchmarks/learning_from_use.py --data=DATA --encoder=MINILM --directory=scratch
  python benchmarks/learning_from_use.py ... --choose   # strength and threshold, other questions
  python benchmarks/learning_from_use.py ... --answerable   # whether it is known what was found

DATA has the first 60 words of 12,000 leads of English Wikipedia to search, and WebQuestions,
CuratedTREC, SQuAD and Cranfield to ask (`open_data`). What was embedded stays in --directory.
"""

import argparse
import dataclasses
import functools
import gzip
import itertools
import json
import os
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from realm_jax.data.answers import occurs
from realm_jax.data.judgements import read_judgements, read_queries
from realm_jax.data.questions import Question, read_questions
from realm_jax.evaluation import document_ranking, resampling
from realm_jax.foundations import progress
from realm_jax.knowledge_base import answerability, evaluation, use_memory
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from realm_jax.knowledge_base.snapshot import Snapshot
from realm_jax.knowledge_base.use_memory import JudgedPassage, Memory, PastQuestion

_SIZES = (100, 400, 800, 1600)  # and all
_NEAR = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)
_STRENGTHS, _THRESHOLDS = (0.4, 0.6, 0.8, 1.0), (0.4, 0.5, 0.6)
_FOLDS, _DEVELOPED = 5, 400
_LEADS, _LEAD_WORDS = 12_000, 60
# Without training a search has these.
Score = Callable[[Snapshot, Memory | None], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Set:
  """Questions of one kind: those that are remembered, and others."""

  base: str
  past: Sequence[Question]
  developed: Sequence[Question]
  asked: Sequence[Question]


def lines(path: str) -> Iterator[dict]:
  with (gzip.open if path.endswith(".gz") else open)(path, "rt") as file:
    yield from map(json.loads, file)


def texts(name: str, data: str) -> tuple[list[dict], int]:
  """Returns the documents of a base, and the words of a passage."""
  if name == "cranfield":
    found = ({**line, "id": line["_id"]} for line in lines(f"{data}/cranfield/corpus.jsonl"))
    return [d for d in found if d["text"] or d["title"]], 100
  if name == "squad":
    passages = [*lines(f"{data}/squad_open/passages.jsonl.gz")]
    train = [passage for passage in passages if passage["split"] == "train"]
    return [p for p in passages if p["split"] != "train"] + train[::4], 200
  articles = lines(f"{data}/corpus/enwiki_core_2015_lead4k.jsonl.gz")
  cut = ({**a, "text": " ".join(a["text"].split()[:_LEAD_WORDS])} for a in articles)
  kept = ({**a, "id": str(number)} for number, a in enumerate(cut) if a["text"])
  return [*itertools.islice(kept, _LEADS)], 100


def open_base(name: str, arguments: argparse.Namespace) -> Snapshot:
  """Returns a knowledge base, made if it is missing, that embeds no question twice."""
  path = os.path.join(arguments.directory, name)
  if not os.path.exists(path):
    documents, words = texts(name, arguments.data)
    KnowledgeBase.create(
      path, documents, language="en", encoder=arguments.encoder, passage_words=words
    )
  snapshot = KnowledgeBase(path)._folder.newest()
  return dataclasses.replace(snapshot, embed=functools.cache(snapshot.embed))


def ranked_by(snapshot: Snapshot, ranking: str) -> Snapshot:
  settings = dataclasses.replace(snapshot.commit.settings, ranking=ranking)
  return dataclasses.replace(
    snapshot, commit=dataclasses.replace(snapshot.commit, settings=settings)
  )


def question_sets(data: str) -> dict[str, Set]:
  """Returns the sets; what is asked is no part of what strength and threshold were chosen by."""
  read = lambda name: read_questions(f"{data}/qa/{name}.jsonl")  # noqa: E731
  mixed = lambda questions: random.Random(0).sample(questions, len(questions))  # noqa: E731
  trec = mixed(read("curatedtrec/large2470_train"))
  squad = mixed(
    [
      Question(id=str(number), text=line["question"], answers=tuple(line["answer"]), regex=False)
      for number, line in enumerate(lines(f"{data}/squad_open/dev.jsonl.gz"))
    ]
  )
  val = mixed(read("webquestions/val"))[:_DEVELOPED]
  past = mixed(read("webquestions/trainmodel"))
  return {
    "WebQuestions": Set("leads", past, val, read("webquestions/test")),
    "CuratedTREC": Set("leads", trec[400:], trec[:400], read("curatedtrec/dpr_test694")),
    "SQuAD-open": Set("squad", squad[:3000], squad[3000:3400], squad[4000:5500]),
  }


def recall_at_5(questions: Sequence[Question], snapshot: Snapshot, memory: Memory | None):
  """Returns of which questions an answer is among five passages."""
  return np.array(
    [
      any(
        occurs(hit.text, question.answers, regex=question.regex)
        for hit in snapshot.search(question.text, 5, memory=memory)
      )
      for question in progress.track(questions, what="questions")
    ],
    float,
  )


def memory_of(records: Sequence[PastQuestion], *, answered: bool = True) -> Memory:
  return Memory({one.key: one for one in records if one.useful or not answered}, {})


def spoiled(records: Sequence[PastQuestion], snapshot: Snapshot) -> list[PastQuestion]:
  """Returns records of which a tenth have a random passage instead of theirs."""
  draw, rows = random.Random(1), range(len(snapshot.live_N))
  wrong = set(draw.sample(range(len(records)), len(records) // 10))
  return [
    dataclasses.replace(one, useful=(JudgedPassage.of(snapshot.hit(draw.choice(rows))),))
    if number in wrong
    else one
    for number, one in enumerate(records)
  ]


def remembered(questions: Sequence[Question], snapshot: Snapshot) -> list[PastQuestion]:
  pasts = [PastQuestion(question=q.text, answers=q.answers, regex=q.regex) for q in questions]
  return [use_memory.answered(snapshot, one) for one in progress.track(pasts, what="past")]


def shown(after: np.ndarray, before: np.ndarray) -> str:
  compared = resampling.compare(after, before)
  low, high = compared.interval
  return f"{compared.first:.3f} ({compared.difference:+.3f}, {low:+.3f} to {high:+.3f})"


def measure(one: Set, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
  """Yields rows of a table: after how many questions, and the figures."""
  before = recall_at_5(one.asked, snapshot, None)
  yield "0", f"{before.mean():.3f}"
  records = remembered(one.past, snapshot)
  sizes = [size for size in _SIZES if size < len(records)] if len(records) > 1700 else []
  for size in [*sizes, len(records)]:
    memory = memory_of(records[:size])
    after = recall_at_5(one.asked, snapshot, memory)
    yield f"{size:,} ({len(memory.records):,} with a passage)", shown(after, before)
  wrong = recall_at_5(one.asked, snapshot, memory_of(spoiled(records, snapshot)))
  yield "all, a tenth of them wrong", shown(wrong, before)
  near = np.array([nearest(question.text, memory, snapshot) for question in one.asked])
  for low, high in itertools.pairwise(_NEAR):
    if (some := (near >= low) & (near < high)).any():
      figures = f"{before[some].mean():.3f} to {shown(after[some], before[some])}"
      yield f"nearest past question {low} to {min(high, 1)}: {some.sum():,}", figures


def measure_answerable(one: Set, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
  """Yields rows: after how many questions, and how well it is known what five passages answer."""
  records = remembered(one.past, snapshot)
  for size in sorted({*(size for size in _SIZES if size < len(records)), len(records)}):
    memory = memory_of(records[:size], answered=False)
    model = answerability.learn(snapshot, one.past[:size], memory=memory)
    if model is None:
      yield f"{size:,}", "too few"
      continue
    learned = dataclasses.replace(snapshot, answerability=model)
    figures = evaluation.answerable(learned, one.asked, memory) or {}
    shares = (
      f"{n} {value:.3f} ({low:.3f} to {high:.3f})" for n, (value, (low, high)) in figures.items()
    )
    yield f"{size:,}", ", ".join(shares)


def nearest(question: str, memory: Memory, snapshot: Snapshot) -> float:
  by_words = snapshot.commit.settings.ranking == "words"
  question_E = None if by_words or snapshot.embed is None else snapshot.embed(question)
  return float(memory.similarity(question, snapshot, question_E).max())


def measure_cranfield(data: str, snapshot: Snapshot) -> tuple[np.ndarray, np.ndarray]:
  """Returns nDCG@10 with memory of the other folds, and without."""
  judgements = read_judgements(f"{data}/cranfield/qrels/test.tsv")
  queries = read_queries(f"{data}/cranfield/queries.jsonl", judgements)
  queries = [q for q in queries if any(judgements[q.id].values())]
  fold = {
    q.id: number % _FOLDS for number, q in enumerate(random.Random(0).sample(queries, len(queries)))
  }
  places = {id for id in {d for of in judgements.values() for d in of} if snapshot.find([id])[0]}
  records = {}
  for query in progress.track(queries, what="past"):
    right = [id for id, grade in judgements[query.id].items() if grade > 0 and id in places]
    judged = use_memory.judged(snapshot, query.text, right)
    records[query.id] = PastQuestion(question=query.text, useful=judged)
  memories = [
    memory_of([records[q.id] for q in queries if fold[q.id] != number]) for number in range(_FOLDS)
  ]
  runs = [{}, {}]
  for query in progress.track(queries, what="queries"):
    for run, memory in zip(runs, (memories[fold[query.id]], None), strict=True):
      run[query.id] = evaluation.ranked(
        functools.partial(snapshot.search, memory=memory), query.text
      )
  after, before = (
    document_ranking.document_scores(run, judgements, queries, recall_at=[20])["ndcg@10"]
    for run in runs
  )
  return after, before


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--data", required=True)
  parser.add_argument("--encoder", required=True, help="directory of a sentence encoder")
  parser.add_argument("--directory", required=True, help="where knowledge bases are kept")
  parser.add_argument("--choose", action="store_true", help="compare strengths and thresholds")
  parser.add_argument("--answerable", action="store_true", help="measure hits.answerable")
  parser.add_argument("--rankings", nargs="+", default=["encoder", "fused", "words"])
  parser.add_argument("--sets", nargs="+")
  arguments = parser.parse_args()
  sets = question_sets(arguments.data)
  names = arguments.sets or [*sets, "Cranfield"]
  grid = [*itertools.product(_STRENGTHS, _THRESHOLDS)] if arguments.choose else []
  for name, ranking in itertools.product(names, arguments.rankings):
    base = sets[name].base if name in sets else "cranfield"
    snapshot = ranked_by(open_base(base, arguments), ranking)
    if name == "Cranfield":
      for setting in grid or [(use_memory.STRENGTH, use_memory.THRESHOLD)]:
        use_memory.STRENGTH, use_memory.THRESHOLD = setting
        print(
          f"{name} | {ranking} | {setting} |",
          shown(*measure_cranfield(arguments.data, snapshot)),
          flush=True,
        )
    elif arguments.choose:
      memory = memory_of(remembered(sets[name].past, snapshot))
      before = recall_at_5(sets[name].developed, snapshot, None)
      for setting in grid:
        use_memory.STRENGTH, use_memory.THRESHOLD = setting
        after = recall_at_5(sets[name].developed, snapshot, memory)
        print(f"{name} | {ranking} | {setting} |", shown(after, before), flush=True)
    else:
      rows = measure_answerable if arguments.answerable else measure
      for row, figures in rows(sets[name], snapshot):
        print(f"{name} | {ranking} | {row} | {figures}", flush=True)


if __name__ == "__main__":
  main()
