import numpy as np
import pytest

from realm_jax.data import conll


def read(tmp_path, content):
  path = tmp_path / "some.conll"
  path.write_text(content, encoding="utf-8")
  return [(" ".join(s.words), " ".join(s.tags)) for s in conll.read_conll(path)]


def test_two_columns(tmp_path):
  assert read(tmp_path, "Zürich\tB-LOC\nis\tO\n\n\n\nÅse\tB-PER\nÖberg\tI-PER\n") == [
    ("Zürich is", "B-LOC O"),
    ("Åse Öberg", "B-PER I-PER"),
  ]


def test_the_layout_of_conll_2003(tmp_path):
  content = (
    "-DOCSTART- -X- -X- O\n\nEU NNP B-NP I-ORG\nrejects VBZ B-VP O\nGerman JJ B-NP I-MISC\n\n"
    "Nice NNP I-NP I-LOC\nParis NNP B-NP B-LOC\nPeter NNP B-NP I-PER\nBlackburn NNP I-NP I-PER\n"
    "-DOCSTART- -X- O O\n1996 CD I-NP O\r\n"
  )
  assert read(tmp_path, content) == [
    ("EU rejects German", "B-ORG O B-MISC"),
    ("Nice Paris Peter Blackburn", "B-LOC B-LOC B-PER I-PER"),
    ("1996", "O"),
  ]


def test_any_set_of_labels_and_odd_words(tmp_path):
  (sentence,) = read(tmp_path, "#\tO\n10\u00a0km\tB-length_of-road\n\u2028\tO\n…\tI-x\n")
  assert sentence == ("# 10\u00a0km \u2028 …", "O B-length_of-road O B-x")


@pytest.mark.parametrize(
  ("content", "message"),
  [
    ("Oslo\tB-LOC\nBergen\n", r"some\.conll:2: 'Bergen' does not end in a tag such as O, B-PER"),
    ("Oslo LOC\n", r"some\.conll:1: 'Oslo LOC' does not end in a tag"),
    ("Oslo B-\n", r"some\.conll:1: 'Oslo B-' does not end in a tag"),
    ("\n\n-DOCSTART- O\n", r"some\.conll has no sentence"),
  ],
)
def test_what_is_no_conll_file_is_refused_by_line(tmp_path, content, message):
  with pytest.raises(ValueError, match=message):
    read(tmp_path, content)


def test_the_set_of_tags_is_in_order_and_holds_both_of_each_label():
  sentences = [
    conll.TaggedSentence(("a", "b"), ("B-PER", "O")),
    conll.TaggedSentence(("a",), ("B-LOC",)),
  ]
  assert conll.tag_set(sentences) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
  assert conll.tag_set([]) == ("O",)


def test_entities_are_those_that_seqeval_counts():
  pytest.importorskip("seqeval")
  from seqeval.metrics.sequence_labeling import get_entities

  random = np.random.default_rng(0)
  tags = ("O", "B-A", "I-A", "B-B-C", "I-B-C")
  for _ in range(300):
    sequence = random.choice(tags, random.integers(1, 9)).tolist()
    expected = [(label, first, last + 1) for label, first, last in get_entities(sequence)]
    assert conll.entities(sequence) == expected, sequence
