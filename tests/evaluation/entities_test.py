import importlib.util

import pytest

from realm_jax.evaluation import entities

pytest.importorskip("seqeval")

REFERENCES = [["B-PER", "I-PER", "O"], ["B-LOC", "O"], ["O", "B-LOC"]]


def test_an_entity_counts_if_label_and_borders_are_right():
  predictions = [["B-PER", "O", "O"], ["B-LOC", "O"], ["B-LOC", "B-PER"]]
  assert entities.entity_figures(REFERENCES, predictions) == {
    "precision": 0.25,
    "recall": 0.3333,
    "f1": 0.2857,
    "entities": 3,
    "labels": {
      "LOC": {"precision": 0.5, "recall": 0.5, "f1": 0.5, "entities": 2},
      "PER": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "entities": 1},
    },
  }


def test_all_right_and_none_found():
  assert entities.entity_figures(REFERENCES, REFERENCES)["f1"] == 1
  nothing = [["O"] * len(tags) for tags in REFERENCES]
  figures = entities.entity_figures(REFERENCES, nothing)
  assert (figures["precision"], figures["recall"], figures["f1"]) == (0, 0, 0)
  assert entities.entity_figures(nothing, nothing)["entities"] == 0


def test_other_words_are_refused():
  with pytest.raises(ValueError, match="different sentences"):
    entities.entity_figures(REFERENCES, REFERENCES[:2])
  with pytest.raises(ValueError, match="different sentences"):
    entities.entity_figures(REFERENCES, [["O"], *REFERENCES[1:]])


def test_without_seqeval_the_way_out_is_named(monkeypatch):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  with pytest.raises(ValueError, match=r"need seqeval: pip install -e '\.\[ner\]'"):
    entities.check_available()
