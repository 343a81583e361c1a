"""Preprocessor of independent crops (Izacard et al. 2022, Contriever, section 3.1)."""

import seqio
import tensorflow as tf

from realm_jax.data.vocabulary import WordPieceVocabulary

_PASSAGES_PER_CALL = 64


def build_crops(
  dataset: tf.data.Dataset,
  sequence_length,
  *,
  vocabulary: WordPieceVocabulary,
  shortest_crop: float,
  longest_crop: float,
  deletion_rate: float,
) -> tf.data.Dataset:
  """Draws two independent crops of each passage: a query, and the passage it should find.

  Length and position of a crop are drawn uniformly, and some of its wordpieces are deleted. `query`
  is `[CLS] crop [SEP]`; `body`, the other crop, and `title` have no special tokens; `uid` is the
  passage's. Passages without wordpieces are dropped.
  """
  tokenizer = vocabulary.tokenizer

  def crop(ids, uniform_seed, place_seed, deletion_seed):
    total = tf.size(ids)
    share = tf.random.stateless_uniform([], uniform_seed, shortest_crop, longest_crop)
    length = tf.maximum(1, tf.cast(share * tf.cast(total, tf.float32), tf.int32))
    start = tf.random.stateless_uniform([], place_seed, maxval=total - length + 1, dtype=tf.int32)
    kept = tf.random.stateless_uniform([length], deletion_seed) >= deletion_rate
    return tf.boolean_mask(ids[start : start + length], kept)

  @seqio.map_over_dataset(num_seeds=6)
  def build(example, seeds):
    query = crop(example["text_ids"], *seeds[:3])[: sequence_length["query"] - 2]
    return {
      "uid": example["uid"],
      "query": tf.concat([[tokenizer.cls_id], query, [tokenizer.sep_id]], 0),
      "title": example["title_ids"],
      "body": crop(example["text_ids"], *seeds[3:]),
    }

  tokenized = _tokenized(dataset, vocabulary).filter(
    lambda passage: tf.size(passage["text_ids"]) > 0
  )
  return build(tokenized).filter(lambda pair: tf.size(pair["body"]) > 0)


def _tokenized(dataset: tf.data.Dataset, vocabulary: WordPieceVocabulary) -> tf.data.Dataset:
  """Returns `uid`, `title_ids` and `text_ids` of each passage."""

  def tokenize(passages):
    tokenize = vocabulary.tokenizer.tokenize_with_offsets
    return {
      "uid": passages["uid"],
      "title_ids": tokenize(passages["title"])[0],
      "text_ids": tokenize(passages["text"])[0],
    }

  texts = dataset.map(lambda passage: {name: passage[name] for name in ("uid", "title", "text")})
  # A tokenizer call runs hundreds of small operations, whether for one passage or for many.
  batches = texts.batch(_PASSAGES_PER_CALL)
  return batches.map(tokenize, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
