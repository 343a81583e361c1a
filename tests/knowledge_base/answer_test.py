"""Answers of a knowledge base with a reader."""

import pytest

from realm_jax import main
from realm_jax.knowledge_base.knowledge_base import KnowledgeBase
from tests.knowledge_base import tiny_models

SEA = [
  {"id": "ship", "title": "Ship", "text": "Ä vessel sails on the sea.", "year": 1905},
  {"id": "moss", "text": "Moss grows at the sea.", "year": 1958},
  {"id": "oak", "text": "An <b>oak</b> is at sea.", "year": 1960},
]


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
  return tiny_models.write(tmp_path_factory.mktemp("reader"), reads=True)


@pytest.fixture(scope="module")
def base(reader, tmp_path_factory):
  return KnowledgeBase.create(tmp_path_factory.mktemp("kb"), SEA, language="en", reader=reader)


def test_an_answer_is_a_part_of_a_passage_that_the_search_finds(base):
  answer = base.answer("what is at sea")
  hits = base.search("what is at sea", k=2)  # as many as the reader reads
  assert [hit.id for hit in answer.hits] == [hit.id for hit in hits]
  passage = answer.hits[answer.place].text
  assert answer.text and passage[answer.start :].startswith(answer.text)
  assert 0 < answer.probability <= 1


def test_an_answer_depends_only_on_the_passages_read(base, reader, tmp_path):
  answer = base.answer("what is at sea", where={"year": [1905]})
  alone = KnowledgeBase.create(tmp_path / "alone", SEA[:1], language="en", reader=reader)
  expected = alone.answer("what is at sea")
  assert (answer.text, answer.start) == (expected.text, expected.start)
  assert answer.probability == pytest.approx(expected.probability, rel=1e-5)


def test_without_passages_there_is_no_answer(base):
  answer = base.answer("zzz")
  assert (answer.text, answer.probability, len(answer.hits)) == ("", 0, 0)


def test_a_title_without_text_has_no_answer_and_hides_none(reader, tmp_path):
  base = KnowledgeBase.create(tmp_path / "kb", [{"id": "t", "title": "Sea"}], reader=reader)
  assert [hit.id for hit in base.search("sea")] == ["t"]
  assert base.answer("sea").text == ""
  base.add(SEA[1:])
  answer = base.answer("moss grows at sea")
  assert answer.hits[answer.place].text and answer.text


def test_an_answer_is_marked_where_it_was_read(base):
  answer = base.answer("what", where={"year": 1960})
  assert not answer.hits
  answer = base.answer("oak", where={"year": 1960})
  assert "<mark>" in answer._repr_html_() and "<b>oak</b>" not in answer._repr_html_()
  assert f"[{answer.text}]" in " ".join(repr(answer).split())


def test_a_sentence_encoder_from_elsewhere_embeds_and_does_not_read(tmp_path, capsys):
  source, out = tiny_models.write(tmp_path / "source"), str(tmp_path / "out")
  args = [f"--checkpoints={source}/checkpoints", f"--vocabulary={source}/vocabulary"]
  assert main.main(["export_checkpoint", *args, f"--output={out}"]) == 0
  base = KnowledgeBase.create(tmp_path / "kb", SEA, encoder=f"{out}/sentence_encoder")
  ours = KnowledgeBase.create(tmp_path / "ours", SEA, encoder=source)
  assert [h.id for h in base.search("oak", k=3)] == [h.id for h in ours.search("oak", k=3)]
  with pytest.raises(ValueError, match="no span reader"):
    base.add_reader(f"{out}/sentence_encoder")


def test_a_reader_is_added_replaced_and_asked(base, reader, tmp_path, capsys):
  path = str(tmp_path / "kb")
  assert main.main(["kb", "create", path, "--language=en"]) == 0
  KnowledgeBase(path).add(SEA)
  assert main.main(["kb", "ask", path, "what is at sea"]) == 1
  assert "--reader=" in capsys.readouterr().err
  encoder = tiny_models.write(tmp_path / "encoder")
  assert main.main(["kb", "add", path, f"--reader={encoder}"]) == 1
  assert "finetune" in capsys.readouterr().err
  other = tiny_models.write(tmp_path / "other", reads=True, seed=1)
  for one in (other, reader):
    assert main.main(["kb", "add", path, f"--reader={one}"]) == 0
  capsys.readouterr()
  assert main.main(["kb", "ask", path, "what is at sea"]) == 0
  assert repr(base.answer("what is at sea")) in capsys.readouterr().out
  assert len(KnowledgeBase(path)) == 3
