"""Models that embed and read at random, for tests of what a knowledge base does with them."""

import functools
import os

import flax.linen as nn
import jax

from realm_jax.checkpoints import importing, saved_models
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.open_qa import OpenQaModel, SpanReaderConfig
from realm_jax.retrieval.question_retriever import BeamConfig
from realm_jax.text.wordpieces import SPECIAL_TOKENS, WordPieces
from tests.configurations import tiny_bert

LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
PIECES = [*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), ".", "-"]


@functools.partial(jax.jit, static_argnums=(0, 1))
def init(encoder, reader, key):
  if reader is None:
    params = {"dual_encoder": saved_models.init_dual_encoder(encoder.make(), key)}
  else:
    params = saved_models.init_open_qa_model(OpenQaModel(encoder, reader), key)
  # Larger than before a training, so that embeddings of different texts are far from each other.
  return jax.tree.map(lambda leaf: leaf if leaf.ndim < 2 else 10 * leaf, nn.unbox(params))


def write(workdir, *, reads=False, seed=0):
  """Writes a checkpoint with its vocabulary."""
  vocabulary = WordPieces(PIECES)
  sizes = {"vocab_size": vocabulary.vocab_size, "hidden_size": 16, "mlp_size": 32}
  bert = tiny_bert(**sizes, max_length=512, dtype="auto")
  encoder = DualEncoderConfig(bert=bert, projection_size=8)
  reader = SpanReaderConfig(bert=bert, span_hidden_size=8) if reads else None
  beam = BeamConfig(beam_size=3, num_read=2, joint_length=64) if reads else None

  description = saved_models.ModelDescription(
    dual_encoder=encoder,
    span_reader=reader,
    beam=beam,
    query_length=24,
    passage_length=48,
    vocabulary_digest=vocabulary.digest,
    corpus_fingerprint="",
  )
  vocabulary.save(os.path.join(workdir, "vocabulary"))
  params = init(encoder, reader, jax.random.key(seed))
  importing.write(os.path.join(workdir, "checkpoints"), description, params)
  return str(workdir)
