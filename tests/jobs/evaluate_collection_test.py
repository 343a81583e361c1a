"""Retrieval test collections: Cranfield where it is, and a tiny one of our own."""

import json
import pathlib

import pytest

from realm_jax.checkpoints.opening import Sources
from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.vocabulary import VocabularyConfig
from realm_jax.data.questions import read_judgements
from realm_jax.evaluation.document_ranking import read_run
from realm_jax.evaluation.systems import Asking
from realm_jax.jobs.answering.evaluate import evaluate
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

pytest.importorskip("ir_measures", reason="the extra trec is not installed")

CRANFIELD = pathlib.Path(__file__).resolve().parents[3] / "shared/data/cranfield"
DOCUMENTS = {
  "wings": "The slipstream moves along the wing. It ends there. The lift of a wing grows.",
  "heat": "Heat moves through slabs. The slabs grow warm.",
  "plates": "A plate in a slipstream. The heat of plates.",
}
QUERIES = {"q1": "slipstream of a wing", "q2": "warm slabs", "q3": "not judged"}
QRELS = "query-id\tcorpus-id\tscore\nq1\twings\t2\nq1\tplates\t1\nq2\theat\t1\n"


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
  directory = tmp_path_factory.mktemp("collection")
  corpus = [{"_id": name, "title": "", "text": text} for name, text in DOCUMENTS.items()]
  queries = [{"_id": name, "text": text} for name, text in QUERIES.items()]
  for name, records in (("corpus", corpus), ("queries", queries)):
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (directory / f"{name}.jsonl").write_text(lines)
  (directory / "qrels.tsv").write_text(QRELS)
  words = sorted({word.strip(".").lower() for t in DOCUMENTS.values() for word in t.split()})
  WordPieceTokenizer([*SPECIAL_TOKENS, *words, "."]).save(directory / "vocabulary")
  prepare_corpus(
    input=str(directory / "corpus.jsonl"),
    vocabulary=str(directory / "vocabulary"),
    output=str(directory / "passages"),
    chunking=ChunkingConfig(max_sentences=1),
  )
  return directory


def asked(directory, **others):
  return {
    "questions": str(directory / "queries.jsonl"),
    "qrels": str(directory / "qrels.tsv"),
    "asking": Asking(recall_at=(1, 2)),
    **others,
  }


def bm25_over(passages):
  return Sources(passages=str(passages), retriever="bm25")


def test_documents_are_scored_by_their_best_passage(tmp_path, collection):
  output = tmp_path / "bm25"
  figures = evaluate(
    **asked(collection, sources=bm25_over(collection / "passages")), output=str(output)
  )
  assert figures == {
    "questions": 2,
    "ndcg@10": 1.0,
    "mrr@10": 1.0,
    "recall@1": 0.75,
    "recall@2": 1.0,
  }
  run = read_run(output / "run.trec")
  assert list(run["q1"]) == ["wings", "plates"]
  first = json.loads((output / "predictions.jsonl").read_text().splitlines()[0])
  assert first["id"] == "q1"
  assert first["documents"] == ["wings", "plates"]
  assert first["figures"]["recall@1"] == 0.5

  theirs = tmp_path / "theirs.trec"
  theirs.write_text("q1 Q0 heat 1 2.5 x\nq1 Q0 wings 2 2.0 x\n")
  scored = evaluate(**asked(collection, predictions=str(theirs)), output=str(tmp_path / "theirs"))
  assert scored["mrr@10"] == 0.25
  card = json.loads((tmp_path / "theirs" / "figures.json").read_text())
  assert card["measured"]["missing rankings"] == 1
  same = evaluate(**asked(collection, predictions=str(output / "run.trec")))
  assert same == figures
  evaluate(
    **asked(collection, predictions=str(output / "run.trec")),
    max_questions=1,
    output=str(tmp_path / "sample"),
  )
  assert len(read_run(tmp_path / "sample" / "run.trec")) == 1


def test_a_query_that_is_a_document_is_not_among_what_it_finds(tmp_path, collection):
  queries = [{"_id": "plates", "text": DOCUMENTS["plates"]}, {"_id": "heat", "text": "warm wing"}]
  (tmp_path / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
  (tmp_path / "qrels.tsv").write_text(
    "query-id\tcorpus-id\tscore\nplates\twings\t1\nheat\theat\t1\n"
  )
  evaluate(
    questions=str(tmp_path / "queries.jsonl"),
    qrels=str(tmp_path / "qrels.tsv"),
    asking=Asking(recall_at=(1, 2)),
    sources=bm25_over(collection / "passages"),
    output=str(tmp_path / "run"),
  )
  run = read_run(tmp_path / "run" / "run.trec")
  assert {*run["plates"]} == {"wings", "heat"} == {*run["heat"]}


def test_relevant_documents_that_the_corpus_lacks_are_told(tmp_path, collection, caplog):
  twice = "q1\twings\t2\n"
  more = "q1\tgone\t1\nq2\tlost\t2\nq2\tnot_relevant\t0\n"
  (tmp_path / "qrels.tsv").write_text(QRELS + twice + more)
  given = asked(
    collection, sources=bm25_over(collection / "passages"), output=str(tmp_path / "run")
  )
  figures = evaluate(**{**given, "qrels": str(tmp_path / "qrels.tsv")})
  assert figures["recall@2"] == pytest.approx((2 / 3 + 1 / 2) / 2, abs=1e-4)
  told = f"2 of 5 documents judged relevant are not in {collection / 'passages'}, such as 'gone'"
  (warning,) = [message for message in caplog.messages if "judged" in message]
  assert warning == f"{told}; they count as misses"
  card = json.loads((tmp_path / "run" / "figures.json").read_text())
  assert card["measured"]["relevant documents"] == "5, 2 of them not in the corpus"


@pytest.mark.skipif(not CRANFIELD.exists(), reason="needs the data in ../shared/data")
def test_figures_on_cranfield_are_those_of_pytrec_eval(tmp_path):
  import pytrec_eval

  corpus = str(CRANFIELD / "corpus.jsonl")
  prepare_corpus(
    input=corpus,
    vocabulary=str(tmp_path / "vocabulary"),
    learning=VocabularyConfig(vocab_size=2000),
    output=str(tmp_path / "passages"),
  )
  figures = evaluate(
    questions=str(CRANFIELD / "queries.jsonl"),
    qrels=str(CRANFIELD / "qrels/test.tsv"),
    sources=bm25_over(tmp_path / "passages"),
    output=str(tmp_path / "bm25"),
  )
  grades = read_judgements(CRANFIELD / "qrels/test.tsv")
  evaluator = pytrec_eval.RelevanceEvaluator(grades, {"ndcg_cut_10", "recall_20,100"})
  theirs = evaluator.evaluate(read_run(tmp_path / "bm25/run.trec")).values()
  names = {"ndcg@10": "ndcg_cut_10", "recall@20": "recall_20", "recall@100": "recall_100"}
  for ours, name in names.items():
    mean = sum(query[name] for query in theirs) / len(theirs)
    assert figures[ours] == pytest.approx(mean, abs=5.1e-5)  # rounded to four digits
  assert figures["questions"] == 225
  assert figures["ndcg@10"] > 0.35
