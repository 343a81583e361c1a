"""A model's description survives JSON; mismatches are named."""

import dataclasses
import json
import sys
import types

import flax.linen as nn
import jax
import numpy as np
import pytest

from realm_jax.checkpoints import saved_models
from realm_jax.foundations import json_fields
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.uniform_encoder import UniformEncoderConfig
from realm_jax.objectives.contrastive import Contrastive
from realm_jax.objectives.marginal_likelihood import MarginalLikelihood
from realm_jax.objectives.masked_lm import MaskedLm
from realm_jax.objectives.open_qa import OpenQa
from realm_jax.retrieval.retriever import RetrievalConfig
from tests.configurations import tiny_bert

BERT = tiny_bert(vocab_size=100, max_length=16)
PRETRAINED = saved_models.ModelDescription(
  dual_encoder=DualEncoderConfig(bert=BERT, projection_size=4, towers="separate", pooling="mean"),
  knowledge_augmented_encoder=dataclasses.replace(BERT, num_layers=2, dtype="bfloat16"),
  retrieval=RetrievalConfig(num_passages=3, passage_length=9, joint_length=16),
  query_length=7,
  max_masks=2,
  passage_length=9,
  vocabulary_digest="v1",
  corpus_fingerprint="c1",
)
WARM_START = saved_models.ModelDescription(
  dual_encoder=DualEncoderConfig(bert=BERT),
  query_length=7,
  passage_length=9,
  vocabulary_digest="v1",
  corpus_fingerprint="c1",
)


@pytest.mark.parametrize("description", [PRETRAINED, WARM_START])
def test_a_description_survives_json(description):
  content = json.loads(json.dumps(json_fields.as_json(description)))
  assert json_fields.restored(saved_models.ModelDescription, content) == description
  del content["dual_encoder"]["class"]  # a checkpoint from before there were others
  assert json_fields.restored(saved_models.ModelDescription, content) == description


@pytest.mark.parametrize(
  ("value", "path"),
  [
    (DualEncoderConfig(bert=BERT), "realm_jax.models.dual_encoder.DualEncoderConfig"),
    (UniformEncoderConfig(), "realm_jax.models.uniform_encoder.UniformEncoderConfig"),
    (Contrastive(), "realm_jax.objectives.contrastive.Contrastive"),
    (MarginalLikelihood(), "realm_jax.objectives.marginal_likelihood.MarginalLikelihood"),
    (MaskedLm(), "realm_jax.objectives.masked_lm.MaskedLm"),
    (OpenQa(), "realm_jax.objectives.open_qa.OpenQa"),
    (MaskedLm() + OpenQa(), "realm_jax.objectives.objective.Sum"),
  ],
)
def test_classes_have_the_paths_by_which_files_name_them(value, path):
  assert json_fields.as_json(value)["class"] == path


@pytest.mark.parametrize(
  ("named", "message"),
  [
    ("strange.Encoder", "trust strange, import it"),
    ("json.JSONDecoder", "json.JSONDecoder is no EncoderConfig"),
    ("realm_jax.models.bert.BertConfig", "BertConfig is no EncoderConfig"),
    (
      "realm_jax.foundations.json_fields.sys.exit",
      "trust realm_jax.foundations.json_fields.sys, import",
    ),
  ],
)
def test_a_description_runs_no_code_of_others(named, message, tmp_path, monkeypatch):
  (tmp_path / "strange.py").write_text("class Encoder: pass")
  monkeypatch.syspath_prepend(tmp_path)
  content = json.loads(json.dumps(json_fields.as_json(WARM_START)))
  content["dual_encoder"]["class"] = named
  with pytest.raises(ValueError, match=message):
    json_fields.restored(saved_models.ModelDescription, content)
  assert "strange" not in sys.modules


def check_sizes(*, vocab_size=100, passage_length=16, joint_length=16):
  retrieval = RetrievalConfig(num_passages=3, passage_length=9, joint_length=joint_length)
  description = dataclasses.replace(
    WARM_START, passage_length=passage_length, knowledge_augmented_encoder=BERT, retrieval=retrieval
  )
  description.check_sizes(
    types.SimpleNamespace(vocab_size=vocab_size, cls_id=2, sep_id=3, mask_id=4)
  )


def test_only_special_wordpieces_can_be_ignored():
  vocabulary = types.SimpleNamespace(vocab_size=100, cls_id=2, sep_id=3, mask_id=4)
  for ignored in ((), (4,)):
    dual_encoder = dataclasses.replace(WARM_START.dual_encoder, ignored_ids=ignored)
    dataclasses.replace(WARM_START, dual_encoder=dual_encoder).check_sizes(vocabulary)
  dual_encoder = dataclasses.replace(WARM_START.dual_encoder, ignored_ids=(4, 7))
  with pytest.raises(ValueError, match=r"ignored_ids=\(4, 7\): \[7\] are not .* \[MASK\] is 4"):
    dataclasses.replace(WARM_START, dual_encoder=dual_encoder).check_sizes(vocabulary)


def test_embeddings_that_no_wordpiece_uses_are_warned_of(caplog):
  with caplog.at_level("WARNING", logger="absl"):
    check_sizes(vocab_size=50)
    assert not caplog.messages
    check_sizes(vocab_size=49)
  assert "vocab_size=100, but the vocabulary only 49 wordpieces" in caplog.messages[0]


def test_a_run_is_continued_as_it_was():
  metadata = json.loads(json.dumps({"model": json_fields.as_json(PRETRAINED)}))
  saved_models.check_same_run(metadata, PRETRAINED, "runs/a")
  changed = dataclasses.replace(PRETRAINED, vocabulary_digest="v2")
  message = r"runs/a holds a run with another vocabulary_digest \(v1, now v2\); resume it unchanged"
  with pytest.raises(ValueError, match=message):
    saved_models.check_same_run(metadata, changed, "runs/a")


def test_digests_tell_values_and_names_apart():
  params = {"tower": {"kernel": np.arange(6.0).reshape(2, 3)}}
  digest = saved_models.params_digest(params)
  assert digest == saved_models.params_digest(jax.tree.map(np.copy, params))
  changed = {"tower": {"kernel": params["tower"]["kernel"].copy()}}
  changed["tower"]["kernel"][1, 2] += 1e-9
  assert digest != saved_models.params_digest(changed)
  assert digest != saved_models.params_digest({"tower": {"bias": params["tower"]["kernel"]}})


def test_a_digest_of_what_embeds_passages_survives_fine_tuning():
  shared = WARM_START.dual_encoder
  separate, copies = shared.separated()
  assert separate.separated()[0] == separate
  abstract = jax.eval_shape(
    lambda: nn.unbox(saved_models.init_dual_encoder(shared.make(), jax.random.key(0)))
  )
  params = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), abstract)
  digest = saved_models.passages_digest(shared, params)
  assert digest == saved_models.params_digest(params["tower"])
  copied = {here: params[there] for here, there in copies.items()}
  copied["query_tower"] = jax.tree.map(np.zeros_like, copied["query_tower"])
  assert digest == saved_models.passages_digest(separate, copied)
