import numpy as np
import pytest

from realm_jax.corpus.documents import Document
from realm_jax.evaluation import probes
from realm_jax.evaluation.resampling import Comparison
from realm_jax.index.words.bm25 import Bm25Retriever
from realm_jax.index.words.postings import Postings


def document(number, *, title=None, sentences=4):
  text = " ".join(
    f"The topic{number} has part{number} and also piece{number} in place {i}."
    for i in range(sentences)
  )
  title = f"About topic{number}" if title is None else title
  return Document(id=f"d{number}", title=title, text=f"{title}\n{text}")


DOCUMENTS = [document(number) for number in range(40)]


def by_words(made):
  bm25 = Bm25Retriever([Postings.build([d.text for d in made.documents])])

  def search(query, k):
    ids = bm25.retrieve([query], k=k).ids_BxK[0]
    return [made.documents[i].id for i in ids.tolist() if i >= 0]

  return search


def always_the_first(made):
  return lambda query, k: [d.id for d in made.documents[:k]]


def test_neither_titles_nor_the_sentences_asked_for_are_in_the_texts():
  made = probes.make(DOCUMENTS, num_queries=30)
  assert {probe: len(asked) for probe, asked in made.queries.items()} == {
    "titles": 30,
    "sentences": 30,
  }
  text_of = {d.id: d.text for d in made.documents}
  assert len(text_of) == 40 and not any(d.title for d in made.documents)
  for query in made.queries["titles"]:
    assert query.right == {f"d{query.text.removeprefix('About topic')}"}
  for asked in made.queries.values():
    for query in asked:
      assert all(query.text not in text_of[id] and text_of[id] for id in query.right)
  assert probes.make(DOCUMENTS, num_queries=30) == made
  assert probes.make(DOCUMENTS, num_queries=30, seed=1) != made


def test_all_documents_of_a_title_count():
  made = probes.make([document(i, title=["One", "Two"][i % 2]) for i in range(20)])
  choice = probes.choose({"first": always_the_first(made)}, made.queries, start="first")
  right = {query.text: query.right for query in made.queries["titles"]}
  gains = np.array([[d.id in right[t] for d in made.documents[:10]] for t in ("One", "Two")])
  expected = (gains / np.log2(np.arange(2, 12))).sum() / 2 / (1 / np.log2(np.arange(2, 12))).sum()
  assert choice.means["first"]["titles"] == pytest.approx(expected)


def test_what_is_better_in_both_probes_is_chosen():
  made = probes.make(DOCUMENTS)
  retrievers = {"start": always_the_first(made), "words": by_words(made)}
  choice = probes.choose(retrievers, made.queries, start="start")
  assert choice.chosen == "words"
  assert choice.means["words"] == {"titles": 1.0, "sentences": 1.0}
  assert choice.comparisons["words"]["titles"].interval[0] > 0
  assert probes.choose(retrievers, made.queries, start="words").chosen == "words"
  same = {"start": by_words(made), "words": by_words(made)}
  assert probes.choose(same, made.queries, start="start").chosen == "start"


@pytest.mark.parametrize("probe", ["titles", "sentences"])
def test_one_probe_decides_unless_the_other_says_the_opposite(probe):
  made = probes.make(DOCUMENTS)
  good, bad = by_words(made), always_the_first(made)
  of_probe = {query.text for query in made.queries[probe]}

  def half(query, k):
    return (good if query in of_probe else bad)(query, k)

  def other_half(query, k):
    return (bad if query in of_probe else good)(query, k)

  def chosen(first, second, queries=made.queries):
    return probes.choose({"start": first, "other": second}, queries, start="start").chosen

  assert chosen(bad, half) == chosen(half, good) == "other"
  assert chosen(other_half, half) == chosen(good, half) == "start"
  assert chosen(bad, good, {**made.queries, probe: []}) == "other"


def test_a_choice_prints_as_a_table():
  better = Comparison(
    first=0.75, second=0.5, difference=0.25, interval=(0.125, 0.375), p_value=0.001
  )
  choice = probes.Choice(
    chosen="fused",
    means={"words": {"titles": 0.5}, "fused": {"titles": 0.75}},
    comparisons={"fused": {"titles": better}},
  )
  assert [line.split() for line in str(choice).splitlines()] == [
    ["chosen:", "fused"],
    ["titles"],
    ["words", "0.500"],
    ["fused", "0.750", "(+0.250,", "+0.125", "to", "+0.375)"],
  ]
