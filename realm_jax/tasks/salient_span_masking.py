"""SeqIO tasks of masked queries: salient span masking, the paper's ablations, and BERT's masks."""

import functools
import hashlib
import os
import re

import seqio
import tensorflow as tf

from realm_jax.corpus import tagged_examples
from realm_jax.data import preprocessors
from realm_jax.data.batches import Masking
from realm_jax.foundations import object_store
from realm_jax.text import tokenization


def register(*, corpus: str, vocabulary: str, mask: Masking = "salient_span") -> seqio.Task:
  """Registers the masked queries of a tagged corpus, unless they are registered already.

  Args:
    corpus: Directory of tagged examples.
    vocabulary: Directory with `vocab.txt`.
    mask: What to mask.

  Returns:
    The task, named by the kind of mask, the corpus directory and the vocabulary.

  Raises:
    FileNotFoundError: If the corpus has no tagged examples or the vocabulary is missing.
  """
  tokenizer = tokenization.load(vocabulary)
  name = seqio_name(f"{mask}_masking", corpus, tokenizer)
  if name in seqio.TaskRegistry.names():
    return seqio.TaskRegistry.get(name)
  with_tokenizer = {"tokenizer": tokenizer}
  mask_tokens = functools.partial(preprocessors.mask_random_tokens, **with_tokenizer)
  draw, *apply = {
    "salient_span": (
      preprocessors.draw_salient_span,
      functools.partial(preprocessors.mask_span, **with_tokenizer),
    ),
    "random_span": (
      preprocessors.draw_sentence,
      functools.partial(preprocessors.mask_random_span, **with_tokenizer),
    ),
    "random_token": (preprocessors.draw_sentence, mask_tokens),
    "passage_tokens": (preprocessors.whole_passage, preprocessors.crop, mask_tokens),
  }[mask]
  feature = wordpiece_feature(tokenizer)
  return seqio.TaskRegistry.add(
    name,
    source=tagged_source(corpus),
    preprocessors=[
      preprocessors.parse_passages,
      draw,
      functools.partial(preprocessors.tokenize_sentence, **with_tokenizer),
      *apply,
      functools.partial(preprocessors.build_masked_query, **with_tokenizer),
      preprocessors.drop_rejected,
    ],
    output_features={
      "query": feature,
      "mlm_positions": feature,
      "mlm_targets": feature,
    },
  )


def tagged_source(corpus: str) -> seqio.DataSource:
  """Opens the tagged examples of a directory, serialized.

  Args:
    corpus: Directory of tagged examples.

  Raises:
    FileNotFoundError: If there are none.
  """
  files = tagged_examples.files(corpus)
  read = functools.partial(tf.data.TFRecordDataset, compression_type="GZIP")
  return seqio.FileDataSource(read, {"train": files})


def wordpiece_feature(tokenizer: tokenization.WordPieceTokenizer) -> seqio.Feature:
  """Returns a feature of ids, which the preprocessors make."""
  vocabulary = seqio.PassThroughVocabulary(tokenizer.vocab_size)
  return seqio.Feature(vocabulary, add_eos=False, dtype=tf.int32)


def seqio_name(kind: str, corpus: str, tokenizer: tokenization.WordPieceTokenizer) -> str:
  """Returns a registry name that is unique to the corpus and the tokenizer."""
  path = os.fspath(object_store.absolute(corpus))
  # SeqIO allows only letters, digits, dots and underscores; the digest distinguishes /a-b and /a_b.
  digest = hashlib.sha256(path.encode()).hexdigest()[:8]
  return re.sub(r"\W+", "_", f"{kind}:{path}:{digest}:{tokenizer.digest}")
