import dataclasses
import functools

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.checkpoints import saved_models
from realm_jax.checkpoints.importing import Prompts
from realm_jax.checkpoints.orbax_files import Checkpointer
from realm_jax.devices import datatypes, partitioning
from realm_jax.index import generations
from realm_jax.jobs.preparation.export_checkpoint import export_checkpoint
from realm_jax.jobs.preparation.import_checkpoint import import_checkpoint
from realm_jax.models import bert
from realm_jax.models.dual_encoder import DualEncoder, DualEncoderConfig
from realm_jax.models.encoder import example_tokens
from realm_jax.models.knowledge_augmented_encoder import KnowledgeAugmentedEncoder
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.text import tokenization
from tests.configurations import tiny_bert

TOKENIZER = tokenization.WordPieceTokenizer(
  [*tokenization.SPECIAL_TOKENS, *"abcdefg", "##a", "##b"], lower_case=True
)
BERT = tiny_bert(vocab_size=16, num_layers=2, max_length=16, activation="gelu_erf")
RETRIEVAL = RetrievalConfig(num_passages=2, passage_length=10, joint_length=14)
TEXTS = ["a b c", "ab Ba g", "f", "c c a d e f g a"]
ENCODERS = {
  "published": DualEncoderConfig(bert=BERT, projection_size=6),
  "released": DualEncoderConfig(bert=BERT, projection_size=6, layer_norm_epsilon=1e-12),
  "two towers": DualEncoderConfig(bert=BERT, projection_size=6, towers="separate"),
  "mean": DualEncoderConfig(bert=BERT, projection_size=6, pooling="mean"),
  "first token": DualEncoderConfig(bert=BERT, projection_size=8, pooling="cls", output="pooled"),
  "unit length": DualEncoderConfig(
    bert=BERT, projection_size=8, pooling="mean", output="unit_length"
  ),
  "prompts": DualEncoderConfig(
    bert=BERT,
    projection_size=6,
    pooling="mean",
    query_prompt=tuple(map(int, TOKENIZER.encode("g ab"))),
    passage_prompt=tuple(map(int, TOKENIZER.encode("f"))),
  ),
}


def tokens(texts):
  ids = np.zeros((len(texts), 12), np.int32)
  for row, text in zip(ids, TOKENIZER.encode_batch(texts), strict=True):
    row[: len(text) + 2] = [TOKENIZER.cls_id, *text, TOKENIZER.sep_id]
  return datatypes.Tokens(ids=ids, mask=ids > 0, segments=ids * 0)


@pytest.fixture(autouse=True)
def float32_here(monkeypatch):
  """Imported models compute in the machine's fastest dtype; vectors are compared in float32."""
  monkeypatch.setattr(bert, "fastest_dtype", lambda: "float32")


def save(workdir, config, reader=BERT):
  """Writes a checkpoint with random parameters, small projections among them."""
  example = example_tokens(1, 8)
  positions = jnp.zeros((1, 1), jnp.int32)
  boxed = jax.eval_shape(
    lambda key: {
      "dual_encoder": DualEncoder(config).init(
        key, example, example.reshape(1, 1, 8), deterministic=True
      )["params"],
      "knowledge_augmented_encoder": KnowledgeAugmentedEncoder(reader).init(
        key, example, positions, deterministic=True
      )["params"],
    },
    jax.random.key(0),
  )
  random = np.random.default_rng(0)
  params = {
    path: random.normal(0, 0.03 if "projection" in path else 0.3, leaf.shape).astype(np.float32)
    for path, leaf in flax.traverse_util.flatten_dict(nn.unbox(boxed), sep="/").items()
  }
  description = saved_models.ModelDescription(
    dual_encoder=config,
    knowledge_augmented_encoder=reader,
    retrieval=RETRIEVAL,
    query_length=12,
    passage_length=10,
    vocabulary_digest=TOKENIZER.digest,
    corpus_fingerprint="",
  )
  with Checkpointer(workdir / "checkpoints") as checkpointer:
    state = {"params": flax.traverse_util.unflatten_dict(params, sep="/")}
    checkpointer.save(3, state, input={}, metadata={"model": dataclasses.asdict(description)})
    checkpointer.wait()
  TOKENIZER.save(workdir / "vocabulary")


def export_saved(tmp_path, *, vocabulary="vocabulary", **settings):
  places = {"checkpoints": "checkpoints", "vocabulary": vocabulary, "output": "out"}
  export_checkpoint(**{name: str(tmp_path / place) for name, place in places.items()}, **settings)


def export(tmp_path, config):
  save(tmp_path, config)
  export_saved(tmp_path)
  return tmp_path / "out"


def import_here(source, workdir, **settings):
  given = {"retrieval": RETRIEVAL, "query_length": 12, **settings}
  import_checkpoint(source=[str(source)], workdir=str(workdir), **given)


def embed(workdir, *, method="encode_query"):
  """Returns embeddings of the texts with a checkpoint."""
  saved = saved_models.load(str(workdir / "checkpoints"))
  module, params = saved.retriever(partitioning.make_mesh())
  apply = jax.jit(functools.partial(module.apply, deterministic=True, method=method))
  return np.asarray(apply({"params": params["dual_encoder"]}, tokens(TEXTS)))


def folders(config):
  if config.towers == "shared":
    return {"sentence_encoder": "encode_query"}
  return {"query_encoder": "encode_query", "passage_encoder": "encode_passage"}


@pytest.mark.parametrize("name", ["published", "two towers", "unit length", "prompts"])
def test_what_is_exported_can_be_imported(name, tmp_path):
  config = ENCODERS[name]
  out = export(tmp_path, config)
  for folder, method in folders(config).items():
    import_here(out / folder, tmp_path / folder)
    np.testing.assert_allclose(embed(tmp_path / folder), embed(tmp_path, method=method), atol=1e-5)
    imported = saved_models.load(str(tmp_path / folder / "checkpoints")).description.dual_encoder
    assert (imported.query_prompt, imported.passage_prompt) == (
      config.query_prompt,
      config.passage_prompt,
    )


def test_prompts_are_given_where_a_model_declares_none(tmp_path):
  out = export(tmp_path, ENCODERS["unit length"]) / "sentence_encoder"
  digests = []
  for prompt in ("c", "d"):
    import_here(out, tmp_path / prompt, prompts=Prompts(query_prompt="a ", passage_prompt=prompt))
    saved = saved_models.load(str(tmp_path / prompt / "checkpoints"))
    encoder = saved.description.dual_encoder
    assert TOKENIZER.decode((*encoder.query_prompt, *encoder.passage_prompt)) == f"a {prompt}"
    _, params = saved.retriever(partitioning.make_mesh())
    digests.append(saved_models.passages_digest(encoder, params["dual_encoder"]))
  assert digests[0] != digests[1]  # an index of one is refused by the other


def test_masked_lm_can_be_imported(tmp_path):
  out = export(tmp_path, ENCODERS["published"])
  import_here(out / "masked_lm", tmp_path / "again")
  before, after = (
    saved_models.load(str(path / "checkpoints")).pretraining_model(partitioning.make_mesh())[1]
    for path in (tmp_path, tmp_path / "again")
  )
  jax.tree.map(
    np.testing.assert_array_equal,
    before["knowledge_augmented_encoder"],
    after["knowledge_augmented_encoder"],
  )


@pytest.mark.parity
@pytest.mark.parametrize("name", ENCODERS)
def test_sentence_transformers_gives_the_same_embeddings(name, tmp_path):
  library = pytest.importorskip("sentence_transformers")
  config = ENCODERS[name]
  out = export(tmp_path, config)
  for folder, method in folders(config).items():
    model = library.SentenceTransformer(str(out / folder), device="cpu")
    assert model.max_seq_length == 12 + len(config.query_prompt)
    theirs = model.encode_query if method == "encode_query" else model.encode_document
    np.testing.assert_allclose(theirs(TEXTS), embed(tmp_path, method=method), atol=1e-5)


@pytest.mark.parity
def test_transformers_gives_the_same_logits(tmp_path):
  torch = pytest.importorskip("torch")
  transformers = pytest.importorskip("transformers")
  out = export(tmp_path, ENCODERS["published"])
  model, loading = transformers.AutoModelForMaskedLM.from_pretrained(
    out / "masked_lm", output_loading_info=True
  )
  assert not any(loading.values()), loading
  tokenizer = transformers.AutoTokenizer.from_pretrained(out / "masked_lm")
  batch = tokenizer(TEXTS, padding="max_length", max_length=12, return_tensors="pt")
  ours = tokens(TEXTS)
  np.testing.assert_array_equal(batch["input_ids"], ours.ids)
  with torch.no_grad():
    expected_NxLxV = model(**batch).logits.numpy()
  saved = saved_models.load(str(tmp_path / "checkpoints"))
  _, params = saved.pretraining_model(partitioning.make_mesh())
  positions_NxL = np.broadcast_to(np.arange(12, dtype=np.int32), ours.shape)
  logits_NxLxV = jax.jit(KnowledgeAugmentedEncoder(BERT).apply, static_argnames="deterministic")(
    {"params": params["knowledge_augmented_encoder"]}, ours, positions_NxL, deterministic=True
  )
  np.testing.assert_allclose(
    np.asarray(logits_NxLxV)[ours.mask], expected_NxLxV[ours.mask], atol=1e-5
  )


def test_embeddings_of_a_generation_that_this_encoder_made(tmp_path):
  save(tmp_path, ENCODERS["published"])
  saved = saved_models.load(str(tmp_path / "checkpoints"))
  _, params = saved.retriever(partitioning.make_mesh())
  embeddings_NxE = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
  index = str(tmp_path / "index")
  manifest = generations.Manifest(
    training_step=3,
    parameters_digest=saved_models.passages_digest(
      saved.description.dual_encoder, params["dual_encoder"]
    ),
    corpus_fingerprint="c",
    vocabulary_digest=TOKENIZER.digest,
    num_passages=5,
    embedding_size=6,
    dtype="float32",
    searcher={"kind": "exact"},
  )
  parts = [{"embeddings": embeddings_NxE[:2]}, {"embeddings": embeddings_NxE[2:]}]
  generations.publish(index, 0, parts, manifest=manifest, keep=1)
  another = dataclasses.replace(manifest, parameters_digest="p", training_step=4)
  generations.publish(index, 1, parts, manifest=another, keep=2)
  with pytest.raises(ValueError, match="generation 1 in .* built with another passage encoder"):
    export_saved(tmp_path, index=index)
  assert not (tmp_path / "out").exists()
  export_saved(tmp_path, index=index, generation=0)
  np.testing.assert_array_equal(np.load(tmp_path / "out" / "embeddings.npy"), embeddings_NxE)
  with pytest.raises(FileNotFoundError, match="no index generation in"):
    export_saved(tmp_path, index=str(tmp_path / "nothing"))


def test_another_vocabulary_is_refused(tmp_path):
  save(tmp_path, ENCODERS["published"])
  other = tokenization.WordPieceTokenizer(TOKENIZER.vocabulary, lower_case=False)
  other.save(tmp_path / "other")
  with pytest.raises(ValueError, match="prepare the corpus with the checkpoint"):
    export_saved(tmp_path, vocabulary="other")


def test_a_reader_that_copies_is_refused(tmp_path):
  save(tmp_path, ENCODERS["published"], reader=dataclasses.replace(BERT, copies=True))
  with pytest.raises(ValueError, match="a reader that copies, which a BertForMaskedLM cannot"):
    export_saved(tmp_path)
