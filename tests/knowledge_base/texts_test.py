"""Passages of a knowledge base are whole sentences, or parts of one that is too long."""

import pytest

from realm_jax.corpus.documents import Document
from realm_jax.knowledge_base.store import passages


def cut(text, language, *, words):
  document = Document(id="d", title="", text=text)
  return [passage.text for passage in passages.cutter(words=words)(document, language)]


@pytest.mark.parametrize("letter", ["w", "ŵ"])
def test_only_a_sentence_that_is_too_long_is_cut_and_between_words(letter):
  long = "Words " + " ".join(f"{letter}{n}" for n in range(23)) + "."
  short = f"Tall moss gre{letter}."
  found = cut(f"{short} {short} {long}\n{short}", "en", words=10)
  assert [len(passage.split()) for passage in found] == [6, 10, 10, 7]
  assert " ".join(found).split() == f"{short} {short} {long} {short}".split()


@pytest.mark.parametrize(
  ("language", "words"),
  [
    ("th", "ประชากร ของ ประเทศ อาศัย อยู่ ใน เมือง หลวง"),
    ("zh", "北京 是 中国 的 首都 文化 中心 城市"),
    ("ja", "東京 は 日本 の 首都 です"),
  ],
)
def test_words_are_counted_where_no_spaces_are_between_them(language, words):
  words = words.split()
  text = "".join(words) * 20
  found = cut(text, language, words=50)
  assert "".join(found) == text
  assert len(found) <= -(-len(words) * 20 // 50) + 1


def test_a_document_of_few_words_is_one_passage():
  for text in ("", "Moss\n grows.  It is tall.", "Moss grows!Oaks are tall, too.", "Ŵ. Ŵ! 苔"):
    assert cut(text, "en", words=5) == [text]
