import numpy as np
import pytest

from realm_jax.checkpoints.formats import huggingface_names, imported_model
from realm_jax.checkpoints.formats.huggingface_files import Source
from tests.checkpoints.formats.conftest import assert_fills, assert_same, fill


@pytest.fixture
def settings(bert_config):
  return huggingface_names.config_to_json(bert_config)


def test_a_masked_lm_lends_its_bert_to_the_dual_encoder(make_masked_lm, make_tower, settings):
  network = make_masked_lm(0)
  model = imported_model.find(
    [Source(name="x", weights=network.weights("bert."), settings=settings)]
  )
  assert_fills(model, ("knowledge_augmented_encoder", network))
  params, missing = fill(model, make_tower(0).under("dual_encoder/tower"))
  assert_same(
    {path.removeprefix("dual_encoder/tower/"): value for path, value in params.items()},
    {path: value for path, value in network.params.items() if path.startswith("bert/")},
  )
  assert sorted({path.split("/")[2] for path in missing}) == [
    "pooler",
    "projection",
    "projection_norm",
  ]
  assert model.span_reader is None and model.unused == ()


def test_embedder_and_encoder_of_two_directories(make_masked_lm, make_tower, settings):
  tower, reader = make_tower(0), make_masked_lm(1)
  model = imported_model.find(
    [
      Source(name="embedder", weights=tower.weights("realm."), settings=settings),
      Source(name="encoder", weights=reader.weights("realm."), settings=settings),
    ]
  )
  assert_fills(model, ("dual_encoder/tower", tower), ("knowledge_augmented_encoder", reader))
  assert model.dual_encoder.projection_size == 4
  assert model.dual_encoder.layer_norm_epsilon == 1e-12


@pytest.mark.parametrize("same", [True, False])
def test_scorer_with_one_tower_or_two(same, make_tower, settings):
  query, passage = make_tower(0), make_tower(0 if same else 1)
  weights = query.weights("query_embedder.realm.", "query_embedder.") | passage.weights(
    "embedder.realm.", "embedder."
  )
  model = imported_model.find([Source(name="x", weights=weights, settings=settings)])
  assert model.dual_encoder.towers == ("shared" if same else "separate")
  if same:
    places = [("dual_encoder/tower", passage)]
  else:
    places = [("dual_encoder/query_tower", query), ("dual_encoder/passage_tower", passage)]
  assert_fills(model, *places)


def test_of_two_embedders_the_first_is_for_queries(make_tower, settings):
  query, passage = make_tower(0), make_tower(1)
  sources = [
    Source(name=name, weights=tower.weights("realm."), settings=settings)
    for name, tower in (("fine-tuned", query), ("pre-trained", passage))
  ]
  model = imported_model.find(sources)
  assert_fills(model, ("dual_encoder/query_tower", query), ("dual_encoder/passage_tower", passage))
  third = Source(name="third", weights=make_tower(2).weights("realm."), settings=settings)
  with pytest.raises(ValueError, match="3 embedders in fine-tuned, pre-trained, third"):
    imported_model.find([*sources, third])


def test_reader_beside_an_embedder(make_reader, make_tower, settings):
  tower, reader = make_tower(0), make_reader(1)
  weights = tower.weights("embedder.realm.", "embedder.") | reader.weights(
    "reader.realm.", "reader."
  )
  settings = {**settings, "max_span_width": 3, "reader_layer_norm_eps": 0.5}
  model = imported_model.find([Source(name="x", weights=weights, settings=settings)])
  assert_fills(model, ("dual_encoder/tower", tower), ("span_reader", reader))
  assert model.span_reader is not None
  assert model.span_reader.max_span_width == 3
  assert model.span_reader.span_hidden_size == 3
  assert model.span_reader.layer_norm_epsilon == 0.5
  assert model.knowledge_augmented_encoder is None


def test_sizes_come_from_the_weights_where_nothing_is_said(make_masked_lm, bert_config):
  weights = make_masked_lm(0).weights("bert.")
  with pytest.raises(ValueError, match="num_heads=0; give at least 1"):
    imported_model.find([Source(name="x", weights=weights)])
  del weights["bert.embeddings.position_embeddings.weight"]
  with pytest.raises(ValueError, match="x has not the weights of a BERT: it lacks bert.embed"):
    imported_model.find([Source(name="x", weights=weights)])
  wide = {
    "embeddings.word_embeddings.weight": np.zeros((5, 128)),
    "embeddings.position_embeddings.weight": np.zeros((7, 128)),
    "embeddings.token_type_embeddings.weight": np.zeros((2, 128)),
    "encoder.layer.0.intermediate.dense.weight": np.zeros((11, 128)),
    "encoder.layer.1.intermediate.dense.weight": np.zeros((11, 128)),
  }
  config = imported_model.find([Source(name="x", weights=wide)]).dual_encoder.bert
  assert (config.vocab_size, config.max_length, config.num_segments) == (5, 7, 2)
  assert (config.num_layers, config.num_heads, config.mlp_size) == (2, 2, 11)


def test_an_encoder_is_never_drawn(make_masked_lm, settings):
  network = make_masked_lm(0)
  weights = network.weights("bert.")
  del weights["bert.encoder.layer.1.output.dense.bias"]
  del weights["bert.encoder.layer.0.attention.self.key.weight"]
  model = imported_model.find([Source(name="x", weights=weights, settings=settings)])
  with pytest.raises(ValueError, match="2 parameters of an encoder.*key/kernel.*mlp_out/bias"):
    fill(model, network.under("knowledge_augmented_encoder"))


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda a, b: [{"x": np.zeros(1)}], "has no BERT: no weight is named embeddings.word_emb"),
    (lambda a, b: [a, b], "2 networks of kind plain BERT"),
    (
      lambda a, b: [a | {"cls.predictions.decoder.weight": np.zeros((13, 8))}],
      "is not tied to bert.embeddings.word_embeddings",
    ),
  ],
)
def test_sources_that_make_no_model_are_refused(change, message, make_masked_lm, settings):
  weights = change(*(make_masked_lm(seed).weights("bert.") for seed in (0, 1)))
  sources = [Source(name=str(i), weights=each, settings=settings) for i, each in enumerate(weights)]
  with pytest.raises(ValueError, match=message):
    imported_model.find(sources)


FOREIGN = "is a model of type 'X', which computes something else than BERT"


@pytest.mark.parametrize(
  ("declared", "stem", "message"),
  [
    ({"model_type": "bert"}, "bert.", None),
    ({"model_type": "bert"}, "0.auto_model.", None),
    ({"model_type": "electra"}, "electra.", None),
    ({"model_type": "electra", "embedding_size": 4}, "electra.", "embedding_size=4"),
    ({"model_type": "ernie", "use_task_id": False}, "ernie.", None),
    ({"model_type": "ernie", "use_task_id": True}, "ernie.", "use_task_id=True"),
    ({"architectures": ["BertForMaskedLM"]}, "bert.", None),
    ({"architectures": ["BertModel"]}, "", None),
    ({"architectures": ["MPNetModel"]}, "", FOREIGN.replace("X", "MPNet")),
    ({}, "model.", None),
    ({"model_type": "nystromformer"}, "", FOREIGN.replace("X", "nystromformer")),
    ({"model_type": "xmod"}, "roberta.", FOREIGN.replace("X", "xmod")),
    ({"model_type": "distilbert"}, "distilbert.", FOREIGN.replace("X", "distilbert")),
    ({"model_type": "invented"}, "bert.", FOREIGN.replace("X", "invented")),
    ({"model_type": "bert"}, "roberta.", "'bert', but its weights are named as in 'roberta'"),
    ({"model_type": "roberta"}, "bert.", "'roberta', but its weights are named as in 'bert'"),
    ({"position_embedding_type": "relative_key"}, "", "position_embedding_type='relative_key'"),
    ({"hidden_act": "relu"}, "", "hidden_act='relu'"),
    ({"auto_map": {"AutoModel": "own.py"}}, "", "auto_map="),
    ({"quantization_config": {"bits": 4}}, "", "quantization_config="),
  ],
)
def test_only_what_computes_what_bert_computes(declared, stem, message, make_masked_lm, settings):
  settings = {n: v for n, v in settings.items() if n != "model_type"} | declared
  source = Source(name="x", weights=make_masked_lm(0).weights(stem), settings=settings)
  if message is None:
    assert imported_model.find([source]).knowledge_augmented_encoder is not None
    return
  with pytest.raises(ValueError, match=message):
    imported_model.find([source])


@pytest.mark.parametrize(
  ("settings_say", "stem"),
  [
    ({"model_type": "roberta"}, "roberta."),
    ({"architectures": ["XLMRobertaModel"]}, ""),
    ({}, "roberta."),
  ],
)
def test_positions_of_roberta_begin_after_its_padding_id(
  settings_say, stem, make_masked_lm, settings
):
  network = make_masked_lm(0)
  weights = network.weights(stem)
  name = f"{stem}embeddings.position_embeddings.weight"
  weights[name] = np.concatenate([np.full_like(weights[name][:3], 9), weights[name]])
  positions = len(weights[name])
  del settings["model_type"]
  changed = {**settings, **settings_say, "pad_token_id": 2, "max_position_embeddings": positions}
  model = imported_model.find([Source(name="x", weights=weights, settings=changed)])
  assert model.dual_encoder.bert.max_length == positions - 3
  assert_fills(model, ("knowledge_augmented_encoder", network))


@pytest.mark.parametrize(
  ("name", "stem"),
  [
    ("bert.encoder.layer.0.attention.self.conv.weight", "bert."),
    ("bert.embeddings.task_type_embeddings.weight", "bert."),
    ("encoder.layer.7.output.adapter_modules.en_XX.dense1.weight", ""),
    ("embeddings.x_position_embeddings.weight", ""),
  ],
)
def test_a_weight_that_no_bert_has_is_refused(name, stem, make_masked_lm, settings):
  weights = make_masked_lm(0).weights(stem) | {name: np.zeros(2, np.float32)}
  with pytest.raises(ValueError, match=f"x: 1 weights of its encoder belong to no BERT.*: {name}"):
    imported_model.find([Source(name="x", weights=weights, settings=settings)])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_finite_numbers_are_refused(value, make_masked_lm, settings):
  name = "bert.encoder.layer.0.output.dense.bias"
  weights = make_masked_lm(0).weights("bert.")
  weights[name] = np.where(np.arange(len(weights[name])) == 1, value, weights[name])
  with pytest.raises(ValueError, match=f"x: {name} has values that are NaN or infinite"):
    imported_model.find([Source(name="x", weights=weights, settings=settings)])
  weights[name] = np.ones(len(weights[name]), np.int8)
  with pytest.raises(ValueError, match=f"x: {name} is int8"):
    imported_model.find([Source(name="x", weights=weights, settings=settings)])


@pytest.mark.parametrize(
  "changed",
  [
    {"cls.predictions.bias": "cls.predictions.decoder.bias"},
    {
      "cls.predictions.bias": "lm_head.decoder.bias",
      "cls.predictions.transform.dense.weight": "lm_head.dense.weight",
      "cls.predictions.transform.LayerNorm.bias": "lm_head.layer_norm.bias",
    },
  ],
)
def test_other_names_of_the_masked_lm_head(changed, make_masked_lm, settings):
  network = make_masked_lm(0)
  found = {changed.get(name, name): value for name, value in network.weights("bert.").items()}
  weights = {new: found[old] for new, old in huggingface_names.modernised(found).items()}
  model = imported_model.find([Source(name="x", weights=weights, settings=settings)])
  assert_fills(model, ("knowledge_augmented_encoder", network))
  weights["cls.predictions.decoder.bias"] = weights["cls.predictions.bias"] + 1
  with pytest.raises(ValueError, match="decoder.bias is not tied to cls.predictions.bias"):
    imported_model.find([Source(name="x", weights=weights, settings=settings)])
