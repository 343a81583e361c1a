"""Tests of documents divided into those to learn from and those that are held out."""

import json

import pytest

from realm_jax import main
from tests.experiments import ROOT

split_documents = main.find(str(ROOT / "benchmarks" / "split_documents.py"))


@pytest.fixture
def files(tmp_path):
  """Two inputs: 60 articles of one document, and 10 articles of three paragraphs."""
  single = [{"id": f"a{i}", "title": f"article {i}", "text": f"text {i}"} for i in range(60)]
  several = [
    {"id": f"{'dev' if i == 4 else 'train'}-{i}-{k}", "title": f"topic {i}", "text": f"{i} {k}"}
    for i in range(10)
    for k in range(3)
  ]
  paths = [tmp_path / "single.jsonl", tmp_path / "several.jsonl"]
  for path, rows in zip(paths, (single, several), strict=True):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
  return list(map(str, paths))


@pytest.fixture
def split(files, tmp_path):
  def run(**settings):
    split_documents(**{"inputs": files, "output": str(tmp_path / "split"), **settings})
    return {
      name: [json.loads(line) for line in (tmp_path / "split" / f"{name}.jsonl").open()]
      for name in ("knowledge", "training", "held_out")
    }

  return run


def _ids(rows):
  return {row["id"] for row in rows}


def test_every_document_is_learned_from_or_held_out(split):
  parts = split(held_out=[0.2])
  assert len(parts["knowledge"]) == 90
  assert _ids(parts["training"]) | _ids(parts["held_out"]) == _ids(parts["knowledge"])
  assert not _ids(parts["training"]) & _ids(parts["held_out"])
  assert 5 <= len({row["title"] for row in parts["held_out"]}) <= 25


def test_articles_are_held_out_by_id_alone(split):
  parts = split(held_out=[0.0], held_out_ids="dev-.*")
  assert _ids(parts["held_out"]) == {"dev-4-0", "dev-4-1", "dev-4-2"}


def test_shares_and_strides_of_each_input(split):
  parts = split(held_out=[0.5, 0.0], every=[6, 1])
  assert sum(row["title"].startswith("article") for row in parts["knowledge"]) == 10
  assert all(row["title"].startswith("article") for row in parts["held_out"])


def test_salient_spans_of_the_input_are_kept(tmp_path, split):
  path = tmp_path / "tagged.jsonl"
  rows = [{"title": str(i), "text": " born in 1854", "spans": [[9, 13]]} for i in range(9)]
  path.write_text("".join(json.dumps(row) + "\n" for row in rows))
  parts = split(inputs=[str(path)], held_out=[0.5])
  assert [row["spans"] for row in parts["knowledge"]] == [[[9, 13]]] * 9
  assert parts["knowledge"][0]["text"] == " born in 1854"


def _write(path, rows):
  path.write_text("".join(json.dumps(row) + "\n" for row in rows))
  return str(path)


def test_no_article_is_on_both_sides_whatever_the_order_and_the_inputs(tmp_path, split):
  paragraphs = [
    {"id": f"{i}-{k}", "title": f"Article {i}", "text": f"Paragraph {k} of {i}."}
    for k in range(3)
    for i in range(200)
  ]
  other = [
    {"id": f"other {i}", "title": f"ARTICLE_{i}" if i % 2 else "", "text": f"About {i}."}
    for i in range(200)
  ]
  again = [{"id": f"other {i}", "title": f"Renamed {i}", "text": f"Of {i}."} for i in range(200)]
  files = [_write(tmp_path / f"{i}.jsonl", v) for i, v in enumerate((paragraphs, other, again))]
  parts = split(inputs=files, held_out=[0.2])
  # Numbers 1, 3, 5 ... are one family by title, then by id; an even one has two.
  sides = [
    {
      (name, number)
      for row in parts[part]
      for number in [int("".join(filter(str.isdigit, row["title"] or row["id"])))]
      for name in [row["title"].startswith("Article") and number % 2 == 0]
    }
    for part in ("training", "held_out")
  ]
  assert not sides[0] & sides[1]
  assert 0.1 < len(sides[1]) / (len(sides[0]) + len(sides[1])) < 0.3


def test_ids_to_hold_out_that_match_nothing_are_refused(split, capsys):
  with pytest.raises(ValueError, match="held_out_ids='nothing.*' matches none"):
    split(held_out_ids="nothing.*")
  split(held_out_ids="dev-.*", every=[1, 7])
  assert "matches 3 documents, 0 in use" in capsys.readouterr().out
