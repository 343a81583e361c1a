"""SeqIO task of named entity recognition, from CoNLL files."""

import functools
from collections.abc import Sequence

import seqio
import tensorflow as tf

from realm_jax.data import conll, token_labels
from realm_jax.data.vocabulary import WordPieceVocabulary
from realm_jax.text import tokenization
from tasks.salient_span_masking import seqio_name


def register(*, file: str, vocabulary: str, tags: Sequence[str]) -> seqio.Task:
  """Registers the sentences of a CoNLL file, unless they are registered already.

  Args:
    file: See `conll.read_conll`.
    vocabulary: Directory with `vocab.txt`.
    tags: All tags, in the order of their ids.

  Returns:
    The task, named by the file, the tags and the vocabulary.

  Raises:
    FileNotFoundError: If the file or the vocabulary is missing.
    ValueError: If a sentence has another tag.
  """
  pieces = WordPieceVocabulary(tokenization.load(vocabulary))
  name = seqio_name(f"ner_{'_'.join(tags)}", file, pieces)
  if name in seqio.TaskRegistry.names():
    return seqio.TaskRegistry.get(name)
  sentences = conll.read_conll(file)
  others = {tag for sentence in sentences for tag in sentence.tags} - set(tags)
  if others:
    raise ValueError(
      f"{file} has tags {sorted(others)} that are not among {list(tags)}; train with these as well"
    )
  feature = functools.partial(seqio.Feature, add_eos=False, dtype=tf.int32)
  return seqio.TaskRegistry.add(
    name,
    source=token_labels.SentenceSource(sentences, tags=tags),
    preprocessors=[functools.partial(token_labels.tokenize_words, vocabulary=pieces)],
    output_features={
      "tokens": feature(pieces),
      "labels": feature(seqio.PassThroughVocabulary(1 + len(tags))),
    },
  )
