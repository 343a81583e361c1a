from realm_jax.evaluation.result_card import markdown

CARD = {
  "measured": {"retriever": "BM25", "questions": "a|b.jsonl (3)"},
  "figures": {
    "questions": 3,
    "recall@1": 0.5,
    "groups": {"answer_seen": {"questions": 0}, "real": {"questions": 3, "recall@1": 0.5}},
  },
  "intervals": {"recall@1": (0.25, 0.75)},
}


def test_a_card_says_what_was_measured():
  assert (
    markdown(CARD)
    == """\
# Evaluation

| | |
|---|---|
| retriever | BM25 |
| questions | a\\|b.jsonl (3) |

| figure | value | 95 % interval |
|---|---|---|
| questions | 3 |  |
| recall@1 | 0.5000 | 0.2500 to 0.7500 |

| group | questions | recall@1 |
|---|---|---|
| answer seen | 0 |  |
| real | 3 | 0.5000 |
"""
  )
