"""What the demonstration prints at its end."""

from realm_jax.jobs.training import demo


def test_the_closed_book_has_no_recall():
  figures = {"recall@5": 0.97, "exact_match": 0.25, "groups": {"real": {"exact_match": 0.5}}}
  summary = {
    "wall_seconds": 1,
    "generations_swapped": 2,
    "max_staleness_steps": 3,
    "heldout": {"after_pretraining": figures, "closed_book": figures},
    "edited": {"questions": 10, "answered_new": 8},
    "seed_sentence": {"query": "[MASK]", "answer": "pound"},
  }
  _, after, closed, *_ = (row.split() for row in demo._table(summary).splitlines())
  assert after == ["after", "pretraining", "0.970", "0.250", "(0.50)"]
  assert closed == ["closed", "book", "-", "0.250", "(0.50)"]
