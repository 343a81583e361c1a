"""Preprocessors that turn tagged words into labelled wordpieces.

The first wordpiece of a word has the label 1 + the index of its tag. All other wordpieces, `[CLS]`,
`[SEP]` and padding have 0, which means no label.
"""

from collections.abc import Sequence

import numpy as np
import seqio
import tensorflow as tf

from realm_jax.data.conll import TaggedSentence
from realm_jax.data.vocabulary import WordPieceVocabulary

_SENTENCES_PER_CALL = 64


class SentenceSource(seqio.DataSource):
  """Tagged sentences in memory: `words` (strings) and `tags` (1 + the index of each tag)."""

  def __init__(self, sentences: Sequence[TaggedSentence], *, tags: Sequence[str]):
    super().__init__(["train"], {"train": len(sentences)}, performs_internal_shuffling=True)
    ids = {tag: 1 + place for place, tag in enumerate(tags)}
    self._words = [list(sentence.words) for sentence in sentences]
    self._tags = [[ids[tag] for tag in sentence.tags] for sentence in sentences]

  @property
  def supports_arbitrary_sharding(self) -> bool:
    return False

  def list_shards(self, split: str) -> Sequence[str]:
    return [split]

  def get_dataset(
    self,
    split: str = "train",
    shuffle: bool = True,
    seed: int | None = None,
    shard_info: seqio.ShardInfo | None = None,
    **unused,
  ) -> tf.data.Dataset:
    """Returns the sentences, shuffled globally: files are often sorted by source."""
    del split, shard_info, unused
    order = np.arange(len(self._words))
    if shuffle:
      order = np.random.default_rng(seed).permutation(order)
    words = tf.ragged.constant([self._words[i] for i in order])
    tags = tf.ragged.constant([self._tags[i] for i in order], tf.int32)
    return tf.data.Dataset.from_tensor_slices({"words": words, "tags": tags})


def tokenize_words(
  dataset: tf.data.Dataset, sequence_length, *, vocabulary: WordPieceVocabulary
) -> tf.data.Dataset:
  """Makes `tokens`, the truncated `[CLS] sentence [SEP]`, and `labels`, one for each."""
  room = sequence_length["tokens"] - 2

  def tokenize(examples):
    words, tags = examples["words"], examples["tags"]
    ids, _, _ = vocabulary.tokenizer.tokenize_with_offsets(words.values)
    word_of_piece = ids.value_rowids()
    first = tf.range(tf.size(word_of_piece, tf.int64)) == tf.gather(ids.row_starts(), word_of_piece)
    labels = tf.where(first, tf.gather(tags.values, word_of_piece), 0)
    borders = tf.gather(ids.row_splits, words.row_splits)
    return {
      "ids": tf.RaggedTensor.from_row_splits(ids.values, borders),
      "labels": tf.RaggedTensor.from_row_splits(labels, borders),
    }

  def enclose(example):
    begin, end, none = [vocabulary.bos_id], [vocabulary.eos_id], [0]
    return {
      "tokens": tf.concat([begin, example["ids"][:room], end], 0),
      "labels": tf.concat([none, example["labels"][:room], none], 0),
    }

  # A tokenizer call runs hundreds of small operations, whether for one sentence or for many.
  batches = dataset.ragged_batch(_SENTENCES_PER_CALL)
  sentences = batches.map(tokenize, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
  return sentences.map(enclose, num_parallel_calls=tf.data.AUTOTUNE)


class TokenLabelsConverter(seqio.FeatureConverter):
  """Passes `tokens` and `labels` on unpadded; each batch is padded to its own longest sentence."""

  TASK_FEATURES = {
    "tokens": seqio.FeatureConverter.FeatureSpec(tf.int32),
    "labels": seqio.FeatureConverter.FeatureSpec(tf.int32),
  }
  MODEL_FEATURES = TASK_FEATURES
  PACKING_FEATURE_DTYPES = None

  def __init__(self):
    super().__init__(pack=False, apply_length_check=False)

  def _convert_features(self, ds: tf.data.Dataset, task_feature_lengths) -> tf.data.Dataset:
    del task_feature_lengths
    return ds.map(lambda features: {name: features[name] for name in self.MODEL_FEATURES})

  def get_model_feature_lengths(self, task_feature_lengths):
    return task_feature_lengths
