"""SeqIO tasks of masked queries: salient span masking, the paper's ablations, and BERT's masks."""

import functools
import hashlib
import os
import re

import seqio
import tensorflow as tf

from realm_jax.data import masking, tagged_examples
from realm_jax.data.batches import Masking
from realm_jax.data.vocabulary import WordPieceVocabulary
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
  pieces = WordPieceVocabulary(tokenization.load(vocabulary))
  name = seqio_name(f"{mask}_masking", corpus, pieces)
  if name in seqio.TaskRegistry.names():
    return seqio.TaskRegistry.get(name)
  with_vocabulary = {"vocabulary": pieces}
  mask_tokens = functools.partial(masking.mask_random_tokens, **with_vocabulary)
  draw, *apply = {
    "salient_span": (
      masking.draw_salient_span,
      functools.partial(masking.mask_span, **with_vocabulary),
    ),
    "random_span": (
      masking.draw_sentence,
      functools.partial(masking.mask_random_span, **with_vocabulary),
    ),
    "random_token": (masking.draw_sentence, mask_tokens),
    "passage_tokens": (masking.whole_passage, masking.crop, mask_tokens),
  }[mask]
  feature = functools.partial(seqio.Feature, pieces, add_eos=False, dtype=tf.int32)
  return seqio.TaskRegistry.add(
    name,
    source=tagged_source(corpus),
    preprocessors=[
      masking.parse_passages,
      draw,
      functools.partial(masking.tokenize_sentence, **with_vocabulary),
      *apply,
      functools.partial(masking.build_masked_query, **with_vocabulary),
      masking.drop_rejected,
    ],
    output_features={
      "query": feature(),
      "mlm_positions": feature(),
      "mlm_targets": feature(),
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


def seqio_name(kind: str, corpus: str, vocabulary: WordPieceVocabulary) -> str:
  """Returns a registry name that is unique to the corpus and the vocabulary."""
  path = os.path.abspath(corpus)
  # SeqIO allows only letters, digits, dots and underscores; the digest distinguishes /a-b and /a_b.
  digest = hashlib.sha256(path.encode()).hexdigest()[:8]
  return re.sub(r"\W+", "_", f"{kind}:{path}:{digest}:{vocabulary.tokenizer.digest}")
