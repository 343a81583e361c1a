"""Our models against transformers': golden files always, the library itself with `-m parity`."""

import dataclasses
import functools
import importlib.util
import pathlib

import flax.traverse_util
import jax
import numpy as np
import pytest

from realm_jax.checkpoints.formats import huggingface_files, huggingface_names, imported_model
from realm_jax.checkpoints.importing import imported_params
from realm_jax.devices import datatypes
from realm_jax.models.bert import BertEncoder
from realm_jax.models.dual_encoder import DualEncoder
from realm_jax.models.open_qa import SpanReader, passage_wordpieces
from realm_jax.models.realm import RealmPretrainingModel
from realm_jax.objectives.marginal_likelihood import masked_lm_over_retrieval
from realm_jax.objectives.open_qa import open_qa

TESTDATA = pathlib.Path(__file__).parents[2] / "testdata"
# In float64: absolute for outputs, a part of the largest entry for gradients.
TOLERANCE = 1e-9


@pytest.fixture(scope="module", params=["golden", pytest.param("live", marks=pytest.mark.parity)])
def reference(request, tmp_path_factory):
  """The directory of the models, and the arrays that belong to them."""
  directory = TESTDATA / "realm"
  if request.param == "live":
    pytest.importorskip("transformers.models.deprecated.realm", reason="needs the extra parity")
    spec = importlib.util.spec_from_file_location("reference", TESTDATA / "realm_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    directory = tmp_path_factory.mktemp("realm")
    module.build(directory, seed=1, hidden_size=32, num_blocks=20)
  return directory, dict(np.load(directory / "reference.npz"))


@pytest.fixture(autouse=True)
def in_float64():
  with jax.enable_x64(True):
    yield


class Imported:
  """Directories of Hugging Face as our models."""

  def __init__(self, directory, *names):
    self.sources = [huggingface_files.read(str(directory / name)) for name in names]
    self.found = imported_model.find(self.sources)
    with jax.enable_x64(False):
      params, self.drawn = imported_params(self.found, seed=0)
    self.params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)

  def config(self, config):
    """Returns a configuration in float64 and without dropout."""
    if hasattr(config, "bert"):
      return dataclasses.replace(config, bert=self.config(config.bert))
    return dataclasses.replace(
      config, dtype="float64", dropout_rate=0.0, attention_dropout_rate=0.0
    )

  def check_gradients(self, gradients, weights):
    """Compares gradients with those of each source, by Hugging Face's names."""
    found = imported_model.find(
      [
        dataclasses.replace(source, weights=each)
        for source, each in zip(self.sources, weights, strict=True)
      ]
    )
    ours = flax.traverse_util.flatten_dict(gradients, sep="/")
    compared = ours.keys() & found.weights.keys()
    assert len(compared) > 0.8 * len(ours)
    for path in compared:
      expected = huggingface_names.to_ours(path, found.weights[path], ours[path].shape)
      bar = TOLERANCE * max(np.abs(expected).max(), 1e-2)
      np.testing.assert_allclose(ours[path], expected, rtol=0, atol=bar, err_msg=path)
    # What they have no gradient for has none here.
    for path in ours.keys() - compared:
      assert not np.any(ours[path]), path


def tokens(arrays, name):
  ids, mask, segments = (arrays[f"inputs/{name}_{part}"] for part in ("ids", "mask", "segments"))
  return datatypes.Tokens(
    ids=ids.astype(np.int32), mask=mask > 0, segments=segments.astype(np.int32)
  )


def assert_close(actual, expected):
  np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE)


def taken(arrays, prefix):
  return {n.removeprefix(prefix): value for n, value in arrays.items() if n.startswith(prefix)}


def embedded(module, params, query):
  encode = functools.partial(module.apply, deterministic=True, method="encode_query")
  return jax.jit(encode)({"params": params["dual_encoder"]}, query)


def test_hidden_states_and_embeddings(reference):
  directory, arrays = reference
  model = Imported(directory, "embedder")
  assert model.drawn == []
  config = model.config(model.found.dual_encoder)
  query = tokens(arrays, "query")
  tower = model.params["dual_encoder"]["tower"]
  encode = jax.jit(functools.partial(BertEncoder(config.bert).apply, deterministic=True))
  hidden_FxLxD = encode({"params": tower["bert"]}, query)
  assert_close(np.asarray(hidden_FxLxD)[query.mask], arrays["hidden"][query.mask])
  embeddings_FxE = embedded(DualEncoder(config), model.params, query)
  assert_close(embeddings_FxE, arrays["embeddings"])


def behind_null(tokens_BxKxL):
  """Prepends a slot to the reference's, because our slot 0 is the null passage."""
  return jax.tree.map(
    lambda leaf: np.concatenate([leaf[:1, :1].repeat(len(leaf), axis=0), leaf], axis=1),
    tokens_BxKxL,
  )


@pytest.mark.parametrize("scorer", ["scorer", "two_tower_scorer"])
def test_pretraining_scores_logits_loss_and_gradients(scorer, reference):
  directory, arrays = reference
  model = Imported(directory, scorer, "encoder")
  assert model.drawn == []
  assert model.found.dual_encoder.towers == ("shared" if scorer == "scorer" else "separate")
  passage, joint = (behind_null(tokens(arrays, name)) for name in ("passage", "joint"))
  valid_BxK = np.ones(passage.shape[:2], bool)
  valid_BxK[:, 0] = False
  batch = datatypes.RetrievedBatch(
    queries=datatypes.MaskedQueries(
      query=tokens(arrays, "query"),
      mlm_positions_BxM=arrays["inputs/mlm_positions"].astype(np.int32),
      mlm_targets_BxM=arrays["inputs/mlm_targets"].astype(np.int32),
      mlm_weights_BxM=arrays["inputs/mlm_weights"].astype(np.float32),
      source_uid_B=np.zeros(len(passage.ids), np.int32),
    ),
    passage=passage,
    joint=joint,
    valid_BxK=valid_BxK,
    passage_ids_BxK=np.zeros(passage.shape[:2], np.int32),
    stale_scores_BxK=np.zeros(passage.shape[:2], np.float32),
  )
  module = RealmPretrainingModel(
    model.config(model.found.dual_encoder), model.config(model.found.knowledge_augmented_encoder)
  )

  @jax.jit
  def value_and_gradient(params):
    def loss(params):
      outputs = module.apply({"params": params}, batch, deterministic=True)
      figures = masked_lm_over_retrieval(
        outputs.scores_BxK, outputs.logits_BxKxMxV, batch, marginalize="token"
      )
      return figures["loss"].value, outputs

    return jax.value_and_grad(loss, has_aux=True)(params)

  (loss, outputs), gradients = value_and_gradient(model.params)
  assert_close(outputs.scores_BxK[:, 1:], arrays[f"{scorer}/relevance"])
  assert_close(outputs.logits_BxKxMxV[:, 1:], arrays["mlm_logits"])
  assert_close(loss, arrays[f"{scorer}/loss"])
  model.check_gradients(
    gradients, [taken(arrays, f"{scorer}/gradient/{part}/") for part in ("scorer", "encoder")]
  )


@pytest.mark.parametrize("name", ["reader", "open_qa"])
def test_reading_span_logits_losses_and_gradients(name, reference):
  directory, arrays = reference
  model = Imported(directory, name)
  config = model.config(model.found.span_reader)
  read = tokens(arrays, "read")
  words_FxT = np.asarray(passage_wordpieces(read))
  np.testing.assert_array_equal(words_FxT, arrays[f"{name}/words"])
  relevance_1xR = arrays["inputs/relevance"][None].astype(np.float64)
  starts, ends = arrays[f"{name}/span_starts"], arrays[f"{name}/span_ends"]
  gold_KxTxW = np.zeros((*read.shape, config.max_span_width), bool)
  for k, (firsts, lasts) in enumerate(
    zip(arrays["inputs/starts"], arrays["inputs/ends"], strict=True)
  ):
    for first, last in zip(firsts, lasts, strict=True):
      if first >= 0:
        gold_KxTxW[k, first, last - first] = True
  assert gold_KxTxW.sum() == 3
  batch = datatypes.RetrievedQuestions(
    query=None,
    weights_B=np.ones(1, np.float64),
    question_index_B=np.zeros(1, np.int32),
    passage_ids_BxR=np.arange(relevance_1xR.shape[1], dtype=np.int32)[None],
    embeddings_BxRxE=None,
    has_answer_BxR=arrays["inputs/has_answer"][None],
    joint=jax.tree.map(lambda leaf: leaf[None], read),
    gold_BxKxTxW=gold_KxTxW[None],
  )

  @jax.jit
  def value_and_gradient(params, relevance_1xR):
    def loss(params, relevance_1xR):
      logits_KxTxW = SpanReader(config).apply({"params": params}, read, deterministic=True)
      figures = open_qa(relevance_1xR, logits_KxTxW[None], batch)
      return figures["loss"].value, (logits_KxTxW, figures)

    return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, relevance_1xR)

  (_, (logits_KxTxW, figures)), (gradients, slope_1xR) = value_and_gradient(
    model.params["span_reader"], relevance_1xR
  )
  ours_KxS = np.asarray(logits_KxTxW)[:, starts, ends - starts]
  valid_KxS = words_FxT[:, starts] & words_FxT[:, ends]
  assert valid_KxS.sum() > 20
  assert_close(ours_KxS[valid_KxS], arrays[f"{name}/span_logits"][valid_KxS])
  assert_close(figures["retrieval_loss"].value, arrays[f"{name}/retriever_loss"])
  assert_close(figures["reader_loss"].value, arrays[f"{name}/reader_loss"])
  assert_close(slope_1xR[0], arrays[f"{name}/gradient/relevance"])
  model.check_gradients({"span_reader": gradients}, [taken(arrays, f"{name}/gradient/reader/")])
  total_KxS = np.where(valid_KxS, ours_KxS + relevance_1xR[0, : len(ours_KxS), None], -np.inf)
  block, span = np.unravel_index(total_KxS.argmax(), total_KxS.shape)
  np.testing.assert_array_equal([block, starts[span], ends[span]], arrays[f"{name}/best"])


def test_open_qa_brings_its_retriever_and_its_embeddings(reference):
  directory, arrays = reference
  model = Imported(directory, "open_qa")
  assert model.drawn == []
  module = DualEncoder(model.config(model.found.dual_encoder))
  embeddings_FxE = embedded(module, model.params, tokens(arrays, "query"))
  assert_close(embeddings_FxE, arrays["open_qa/embeddings"])
  (source,) = model.sources
  assert source.weights["block_emb"].shape[1] == embeddings_FxE.shape[1]
  assert not any("block_emb" in name for name in model.found.unused)
