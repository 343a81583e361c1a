"""Starts: which parts a text names, and what is refused."""

import dataclasses

import numpy as np
import pytest

from realm_jax.checkpoints import orbax_files, saved_models
from realm_jax.foundations import json_fields
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.training.run import starts

DUAL, READER = PARTS = ("dual_encoder", "knowledge_augmented_encoder")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  """Checkpoints of both encoders, of a dual encoder with a colon in its name, and of a reader."""
  root = tmp_path_factory.mktemp("starts")
  saved = {
    "both": {DUAL: {"tower": {"bert": np.ones(2)}}, READER: {"bert": np.full(2, 2.0)}},
    "a:b,c": {DUAL: {"tower": {"bert": np.full(2, 3.0)}}},
    "reader": {READER: {"bert": np.full(2, 4.0)}},
    "answers": {"span_reader": {"bert": np.zeros(2)}},
  }
  for name, params in saved.items():
    with orbax_files.Checkpointer(root / name) as checkpointer:
      checkpointer.save(0, {"params": params}, input={}, metadata={})
  return root


@pytest.mark.parametrize(
  ("given", "parts"),
  [
    ([], []),
    (["both"], [[(DUAL, DUAL), (READER, READER)]]),
    (["both:dual_encoder"], [[(DUAL, DUAL)]]),
    (["a:b,c"], [[(DUAL, DUAL)]]),
    (["a:b,c:dual_encoder/tower", "reader"], [[(f"{DUAL}/tower",) * 2], [(READER, READER)]]),
    ([f"reader:dual_encoder/tower={READER}"], [[(f"{DUAL}/tower", READER)]]),
    (
      [f"both:{DUAL}/tower/bert", f"both:{READER}"],
      [[(f"{DUAL}/tower/bert",) * 2], [(READER,) * 2]],
    ),
  ],
)
def test_a_text_names_a_checkpoint_and_its_parts(root, given, parts):
  found = starts.read([f"{root}/{text}" for text in given], parts=PARTS)
  assert [start.parts for start in found] == parts


def test_one_text_is_no_sequence_of_letters(root):
  assert starts.read(f"{root}/both", parts=[READER]) == (
    starts.Start(f"{root}/both", [(READER, READER)]),
  )


@pytest.mark.parametrize(
  ("given", "message"),
  [
    (["answers"], f"the checkpoint has none of {DUAL}, {READER}, but span_reader"),
    (["both:dual_encoder/tower/brt"], "has no dual_encoder/tower/brt, but"),
    ([f"reader:dual_encoder={DUAL}"], f"has no {DUAL}, but {READER}"),
  ],
)
def test_what_cannot_be_taken_or_is_given_twice_is_refused(root, given, message):
  with pytest.raises(ValueError, match=message):
    starts.read([text and f"{root}/{text}" for text in given], parts=PARTS)


def test_parameters_are_those_of_the_checkpoints_and_others_stay(root):
  params = {DUAL: {"tower": {"bert": np.zeros(2)}}, READER: {"bert": np.zeros(2)}}
  given = starts.read(f"{root}/reader:{DUAL}/tower/bert={READER}/bert", parts=PARTS)
  begun = starts.begun(params, params, given)
  assert [*begun[DUAL]["tower"]["bert"]] == [4, 4] and not begun[READER]["bert"].any()
  with pytest.raises(ValueError, match="this model has no dual_encoder/bert"):
    starts.begun(params, params, [starts.Start(f"{root}/both", [(f"{DUAL}/bert", READER)])])


def test_layers_of_a_checkpoint_that_a_model_lacks_are_told(root, caplog):
  params = {DUAL: {"tower": {"bert": np.zeros(2)}}, READER: {}}
  starts.begun(params, params, starts.read(f"{root}/both:{DUAL}", parts=PARTS))
  assert not caplog.messages
  begun = starts.begun(params, params, starts.read(f"{root}/both", parts=PARTS))
  assert [*begun[DUAL]["tower"]["bert"]] == [1, 1]
  told = f"both has 1 parameters in {DUAL}, {READER} that this model has no place for, such as "
  assert f"{told}{READER}/bert" in caplog.messages[-1]


ELSEWHERE = BertConfig(
  hidden_size=8, num_heads=2, dropout_rate=0, activation="gelu_erf", num_segments=5
)
OWN = BertConfig(hidden_size=8, num_heads=2, num_layers=3, layer_norm_epsilon=1e-5)
BROUGHT = dataclasses.replace(OWN, activation="gelu_erf", num_segments=5)
SENTENCES = {"projection_size": 8, "pooling": "mean", "output": "unit_length"}


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
  """A checkpoint of a sentence encoder and its reader, with settings that only imports have."""
  directory = tmp_path_factory.mktemp("imported")
  encoder = DualEncoderConfig(
    bert=ELSEWHERE, query_prompt=(5, 6), layer_norm_epsilon=1e-12, temperature=9, **SENTENCES
  )
  description = saved_models.ModelDescription(
    dual_encoder=encoder,
    knowledge_augmented_encoder=ELSEWHERE,
    query_length=8,
    passage_length=8,
    vocabulary_digest="",
    corpus_fingerprint="",
  )
  params = {DUAL: {"tower": {"bert": np.ones(2)}}, READER: {"bert": np.ones(2)}}
  with orbax_files.Checkpointer(directory) as checkpointer:
    metadata = {"model": json_fields.as_json(description)}
    checkpointer.save(0, {"params": params}, input={}, metadata=metadata)
  return directory


@pytest.mark.parametrize(
  ("part", "brought"),
  [
    ("", {DUAL: {"query_prompt": (5, 6), **SENTENCES}, READER: BROUGHT}),
    (f":{DUAL}", {DUAL: {"query_prompt": (5, 6), **SENTENCES}, READER: OWN}),
    (f":{DUAL}/tower/bert", {DUAL: {}, READER: OWN}),
    (f":{DUAL}/tower/bert={READER}/bert", {DUAL: {}, READER: OWN}),
    (f":{READER}", {DUAL: None, READER: BROUGHT}),
    (f":{READER}/bert={DUAL}/tower/bert", {DUAL: None, READER: BROUGHT}),
  ],
)
def test_what_only_imported_models_have_comes_with_their_parts_unless_it_was_set(
  imported, part, brought
):
  set_here = {"projection_size": 8, "layer_norm_epsilon": 0.5}
  own = {DUAL: DualEncoderConfig(bert=OWN, **set_here), READER: OWN}
  found = starts.configured(starts.read(f"{imported}{part}", parts=PARTS), **own)
  encoder, of_encoder = own[DUAL], brought.pop(DUAL)
  if of_encoder is not None:
    encoder = DualEncoderConfig(bert=BROUGHT, **set_here | of_encoder)
  assert found == {DUAL: encoder, **brought}


def test_an_encoder_of_other_settings_keeps_them(imported):
  given = starts.read(f"{imported}:{DUAL}", parts=PARTS)
  assert starts.configured(given, **{DUAL: OWN}) == {DUAL: OWN}


@pytest.mark.parametrize(
  ("given", "places"),
  [
    (["runs/a,b"], "runs/a,b runs/a,b"),
    (["gs://a/b:dual_encoder", "c:span_reader"], "gs://a/b c"),
    (["c:span_reader", "a"], "span_reader would be taken from c, and span_reader from a"),
    (["a:dual_encoder"], "nothing to start span_reader from; give --start=CHECKPOINTS:span_reader"),
    ([], "nothing to start dual_encoder from"),
    (["a:span_reader/bert"], "give CHECKPOINTS:PART with dual_encoder or span_reader"),
  ],
)
def test_each_part_of_a_model_for_questions_has_one_source(given, places):
  try:
    found = " ".join(starts.sources(given, parts=("dual_encoder", "span_reader")).values())
  except ValueError as error:
    found = str(error)
  assert places in found
