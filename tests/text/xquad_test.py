"""BM25 finds as much in five languages as a tokenizer written for each of them."""

import json
import pathlib

import pytest

from realm_jax.corpus.salient_spans import RareSpans
from realm_jax.index.words.bm25 import Bm25Retriever
from realm_jax.index.words.postings import Postings
from realm_jax.text.languages import languages_of

XQUAD = pathlib.Path(__file__).resolve().parents[3] / "shared/data/xquad"
CONTROL = {"ar": 0.973, "de": 0.976, "hi": 0.979, "ru": 0.981, "zh": 0.991}

pytestmark = pytest.mark.skipif(not XQUAD.exists(), reason="needs the data in ../shared/data")


def records(language, name):
  with open(XQUAD / language / f"{name}.jsonl", encoding="utf-8") as file:
    return [json.loads(line) for line in file]


@pytest.fixture(params=CONTROL, scope="module")
def given(request):
  """A language and its paragraphs, with their titles."""
  return request.param, records(request.param, "corpus")


def test_bm25_finds_as_much_as_the_control(given):
  language, documents = given
  texts = [f"{document['title']}\n{document['text']}" for document in documents]
  assert languages_of(texts) == (language,)
  lines = (XQUAD / language / "qrels" / "test.tsv").read_text().splitlines()[1:]
  right = dict(line.split("\t")[:2] for line in lines)
  questions = records(language, "queries")
  bm25 = Bm25Retriever([Postings.build(texts, languages=[language])])
  found = bm25.retrieve([q["text"] for q in questions], k=5)
  hits = [
    right[question["_id"]] in [documents[i]["_id"] for i in ids if i >= 0]
    for question, ids in zip(questions, found.ids_BxK, strict=True)
  ]
  assert sum(hits) / len(hits) >= CONTROL[language] - 0.01


def test_a_paragraph_has_ten_salient_spans(given):
  language, documents = given
  texts = [document["text"] for document in documents]
  spans = RareSpans(language, texts)
  counts = sorted(len(spans.find(text)) for text in texts)
  assert counts[len(counts) // 10] >= 10
