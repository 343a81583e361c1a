"""SeqIO task of the inverse cloze warm start."""

import functools

import seqio
import tensorflow as tf

from realm_jax.corpus import tagged_examples
from realm_jax.data.preprocessors import build_inverse_cloze, join_title_and_body
from realm_jax.tasks.salient_span_masking import seqio_name, tagged_source, wordpiece_feature
from realm_jax.text import tokenization


def register(
  *,
  corpus: str,
  vocabulary: str,
  hide_salient_spans: bool = False,
) -> seqio.Task:
  """Registers the inverse cloze task over a corpus, unless it is registered already.

  Args:
    corpus: Directory of tagged examples, such as a passage store.
    vocabulary: Directory with `vocab.txt`.
    hide_salient_spans: Whether to mask salient spans of the pseudo-query.

  Raises:
    FileNotFoundError: If the corpus has no tagged examples or the vocabulary is missing.
  """
  tokenizer = tokenization.load(vocabulary)
  build = functools.partial(
    build_inverse_cloze,
    tokenizer=tokenizer,
    hide_salient_spans=hide_salient_spans,
  )
  kind = f"inverse_cloze_{'hidden' if hide_salient_spans else 'plain'}"
  name = seqio_name(kind, corpus, tokenizer)
  if name in seqio.TaskRegistry.names():
    return seqio.TaskRegistry.get(name)
  feature = wordpiece_feature(tokenizer)
  return seqio.TaskRegistry.add(
    name,
    source=tagged_source(corpus),
    preprocessors=[
      _parse,
      build,
      functools.partial(join_title_and_body, tokenizer=tokenizer),
    ],
    output_features={"query": feature, "passage": feature},
  )


@seqio.map_over_dataset
def _parse(record):
  return tf.io.parse_single_example(record, tagged_examples.feature_description())
