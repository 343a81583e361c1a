"""A run is resumed with the same batches, or with others that are allowed by name."""

import dataclasses
import logging

import pytest

from realm_jax.corpus import tagged_examples
from realm_jax.corpus.passage_store import Passage
from realm_jax.data import batches
from realm_jax.text.wordpieces import SPECIAL_TOKENS
from realm_jax.training.recipes.examples import Examples, MaskedQueryData
from realm_jax.training.run import resumption

MADE_OF = {"seed": 0, "batch_size": 32, "mask": "salient_span", "examples": "a1", "sizes": (1, 2)}
SAVED = {**MADE_OF, "sizes": [1, 2]}


def changes(before=SAVED, *, allowed=(), **other):
  return resumption.changes(before, {**MADE_OF, **other}, allowed=allowed, workdir="runs/x")


@pytest.mark.parametrize("other", [{"seed": 7}, {"batch_size": 16}, {"examples": "b2"}])
def test_other_batches_are_refused_by_name_with_both_values(other):
  ((name, value),) = other.items()
  line = f"runs/x holds a run with other batches \\({name} {MADE_OF[name]}, now {value}\\)"
  with pytest.raises(ValueError, match=f"{line}.*--allow_changes={name}$"):
    changes(**other)


def test_what_is_allowed_may_change_and_the_rest_may_not():
  assert changes(seed=7, allowed=("seed",)) == ["seed"]
  with pytest.raises(ValueError, match="mask salient_span, now random_span"):
    changes(seed=7, mask="random_span", allowed=("seed",))
  with pytest.raises(
    ValueError, match=r"allow_changes names \['sede'\]; choose from \['batch_size'"
  ):
    changes(allowed=("sede",))


def test_a_checkpoint_that_does_not_say_goes_on_with_a_notice(caplog):
  with caplog.at_level(logging.WARNING, logger="absl"):
    assert changes(None, seed=7) == []
  assert "does not describe its batches" in caplog.text


def test_examples_say_all_that_decides_their_batches(tmp_path, monkeypatch):
  (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "a", "b"]) + "\n")

  def corpus(name, text):
    passage = Passage(title="", text=text, uid=1, sentences=[(0, 1)], spans=[(0, 1)])
    (tmp_path / name).mkdir()
    writer = tagged_examples.TaggedExampleWriter(tmp_path / name, num_shards=1)
    writer.write(tagged_examples.serialize(passage))
    writer.close()
    return str(tmp_path / name)

  def batch_settings(source, *, seed=0, **settings):
    data = dataclasses.replace(MaskedQueryData(batch_size=8), **settings)
    return Examples(data=data, source=source, vocabulary=str(tmp_path)).batch_settings(seed=seed)

  first, same, other = corpus("first", "a"), corpus("same", "a"), corpus("other", "b")
  assert batch_settings(first) == batch_settings(same)
  for name, found in {
    "examples": batch_settings(other),
    "seed": batch_settings(first, seed=1),
    "batch_size": batch_settings(first, batch_size=4),
    "data_streams": batch_settings(first, data_streams=2),
    "query_length": batch_settings(first, query_length=9),
    "mask": batch_settings(first, mask="random_span"),
  }.items():
    assert {key for key in found if found[key] != batch_settings(first)[key]} == {name}
  now = batch_settings(first)
  monkeypatch.setattr(batches, "PIPELINE", 1)
  with pytest.raises(ValueError, match=r"\(examples pipeline 1 of .* --allow_changes=examples$"):
    resumption.changes(batch_settings(first), now, allowed=(), workdir="runs/x")
