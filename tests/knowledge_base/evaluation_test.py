"""Figures of a knowledge base on collections and questions."""

import json

import numpy as np
import pytest

from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from tests.knowledge_base import tiny_models

PLANTS = [
  {"id": "moss", "text": "Moss grows in the shade."},
  {"id": "fern", "text": "A fern has leaves. It is green."},
  {"id": "oak", "text": "An oak is a tall tree (1185–1226)."},
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
  return tiny_models.write(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def collection(tmp_path):
  queries = {"1": "what grows in the shade", "2": "tall tree", "3": "zzz"}
  judged = {"1": "moss", "2": "oak", "3": "fern"}
  folder = tmp_path / "collection"
  (folder / "qrels").mkdir(parents=True)
  lines = [json.dumps({"_id": id, "text": text}) for id, text in queries.items()]
  (folder / "queries.jsonl").write_text("\n".join(lines))
  lines = ["query-id\tcorpus-id\tscore", *(f"{q}\t{d}\t1" for q, d in judged.items())]
  (folder / "qrels" / "test.tsv").write_text("\n".join(lines))
  return folder


def test_a_judged_collection_measures_each_ranking(encoder, collection, tmp_path):
  base = KnowledgeBase.create(tmp_path / "kb", PLANTS, language="en", encoder=encoder)
  evaluation = base.evaluate(collection)
  assert [*evaluation.figures] == ["words", "encoder", "fused"]
  assert evaluation.figures["words"]["ndcg@10"] == pytest.approx(2 / 3)
  assert evaluation.figures["fused"]["recall@5"] == 1  # all three documents are found
  for place, question, id in ((1, "tall tree", "oak"), (2, "zzz", "fern")):
    found = [*dict.fromkeys(hit.id for hit in base.search(question, k=4))]
    reciprocal = evaluation.scores["fused"]["mrr@10"][place]
    assert reciprocal == pytest.approx(1 / (1 + found.index(id)))
  difference = evaluation.compare("fused")["recall@5"]
  assert difference.difference == pytest.approx(1 / 3)
  assert "3 questions" in repr(evaluation) and "fused - words" in repr(evaluation)


def test_a_query_that_is_a_document_is_not_ranked_but_one_of_the_same_number_is(tmp_path):
  text = "Cats should be kept indoors for their safety. " * 30  # several passages
  documents = [
    {"id": "1", "title": "Cats", "text": text},
    {"id": "2", "text": "Cats should be free outdoors."},
    {"id": "3", "text": "Bread and butter."},
  ]
  folder = tmp_path / "collection"
  (folder / "qrels").mkdir(parents=True)
  base = KnowledgeBase.create(tmp_path / "kb", documents, language="en", passage_words=50)
  for query, relevant, expected in [
    ({"_id": "1", "text": text}, "2", 1),
    ({"_id": "1", "text": f"Cats {text}"}, "2", 1),
    ({"_id": "1", "text": "cats indoors"}, "1", 1),  # numbered likewise by chance
    ({"_id": "4", "text": text}, "1", 1),
  ]:
    (folder / "queries.jsonl").write_text(json.dumps(query))
    (folder / "qrels" / "test.tsv").write_text(
      f"query-id\tcorpus-id\tscore\n{query['_id']}\t{relevant}\t1\n{query['_id']}\t3\t0"
    )
    assert base.evaluate(folder).figures["words"]["mrr@10"] == expected, query


def test_questions_need_a_passage_with_the_answer_in_whole_tokens(tmp_path):
  base = KnowledgeBase.create(tmp_path / "kb", PLANTS, language="en")
  asked = [
    {"question": "what grows in the shade", "answer": "moss"},
    {"question": "what is an oak", "answer": "re"},
    {"question": "fern leaves", "answer": ["L.?eaves"], "regex": True},
    {"question": "when was the tall tree", "answer": "1185"},
  ]
  file = tmp_path / "questions.jsonl"
  file.write_text("\n".join(map(json.dumps, asked)))
  evaluation = base.evaluate(file)
  assert [*evaluation.figures] == ["words"]
  np.testing.assert_array_equal(evaluation.scores["words"]["recall@1"], [1, 0, 1, 1])


def test_a_folder_without_judgements_is_named(tmp_path):
  base = KnowledgeBase.create(tmp_path / "kb", PLANTS, language="en")
  with pytest.raises(ValueError, match="qrels"):
    base.evaluate(tmp_path)


def test_equal_scores_are_ordered_as_a_search_orders_them(collection, tmp_path):
  same = [{"id": id, "text": "A tall tree. It is tall."} for id in "abcdefghijklmoak"]
  same = [*{one["id"]: one for one in same}.values(), PLANTS[0]]
  (collection / "qrels" / "test.tsv").write_text("2\ta\t1\n1\tmoss\t1\n")
  figures = []
  for name, documents in (("up", same), ("down", same[::-1])):
    base = KnowledgeBase.create(tmp_path / name, documents, language="en", passage_words=3)
    assert base.search("tall tree", k=1)[0].id == "a"
    figures.append(base.evaluate(collection).figures["words"])
  assert figures[0] == figures[1] and figures[0]["mrr@10"] == 1


def test_judged_documents_that_are_not_there_are_counted_and_named(collection, tmp_path):
  base = KnowledgeBase.create(tmp_path / "kb", PLANTS, language="en")
  with (collection / "qrels" / "test.tsv").open("a") as file:
    file.write("\n2\tash\t1\n2\tbox elm\t2\n3\tgrass\t0\n")
  evaluation = base.evaluate(collection)
  told = "2 of 5 documents judged relevant are not in the knowledge base, such as 'ash'"
  assert evaluation.missing.startswith(told) and told in repr(evaluation)
  assert evaluation.scores["words"]["recall@5"][1] == pytest.approx(1 / 3)
  base.add([{"id": id, "text": "A tree."} for id in ("ash", "box elm")])
  assert not base.evaluate(collection).missing


def test_memory_is_measured_without_what_was_said_of_the_question_itself(collection, tmp_path):
  base = KnowledgeBase.create(tmp_path / "kb", PLANTS, language="en")
  base.feedback("zzz", useful="fern")
  assert base.search("zzz")[0].id == "fern"
  evaluation = base.evaluate(collection)
  assert evaluation.figures["words + memory"] == evaluation.figures["words"]
  for number in range(1, 12):  # they show each other what memory is worth
    base.feedback("zzz" + number * "?", useful="fern")
  evaluation = base.evaluate(collection)
  assert evaluation.compare("words + memory")["recall@5"].difference == pytest.approx(1 / 3)
  assert "words + memory - words" in repr(evaluation)
