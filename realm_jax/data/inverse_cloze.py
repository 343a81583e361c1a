"""Preprocessor of the inverse cloze task (Lee et al. 2019, section 4.2)."""

import seqio
import tensorflow as tf

from realm_jax.data.masking import inside
from realm_jax.data.vocabulary import WordPieceVocabulary


def build_inverse_cloze(
  dataset: tf.data.Dataset,
  sequence_length,
  *,
  vocabulary: WordPieceVocabulary,
  removal_rate: float,
  hide_salient_spans: bool,
) -> tf.data.Dataset:
  """Makes pseudo-queries from sentences, and the passages that they should find.

  Draws one sentence of each passage uniformly and, with probability `removal_rate`, removes it from
  the passage. Drops a passage that would lose its only sentence. `query` is `[CLS] sentence [SEP]`;
  `title` and `body` have no special tokens; `uid` is the passage's. `hide_salient_spans` replaces
  the salient spans of the query by `[MASK]`, as in pre-training, so that they do not give it away.
  """
  tokenizer = vocabulary.tokenizer

  @seqio.map_over_dataset(num_seeds=2)
  def build(example, seeds):
    starts, limits = example["sentence_byte_start"], example["sentence_byte_limit"]
    num_sentences = tf.size(starts)
    drawn = tf.random.stateless_uniform([], seeds[0], maxval=num_sentences, dtype=tf.int32)
    removed = tf.random.stateless_uniform([], seeds[1]) < removal_rate
    sentences = tf.strings.substr(
      tf.fill([num_sentences], example["text"]),
      tf.cast(starts, tf.int32),
      tf.cast(limits - starts, tf.int32),
    )
    texts = tf.concat([sentences, [example["title"]]], 0)
    ids, token_starts, token_limits = tokenizer.tokenize_with_offsets(texts)
    query = ids[drawn]
    if hide_salient_spans:
      in_span = inside(
        (tf.cast(token_starts[drawn], tf.int64) + starts[drawn])[:, tf.newaxis],
        (tf.cast(token_limits[drawn], tf.int64) + starts[drawn])[:, tf.newaxis],
        example["span_byte_start"],
        example["span_byte_limit"],
      )
      query = tf.where(tf.reduce_any(in_span, axis=1), tokenizer.mask_id, query)
    kept = tf.range(num_sentences) != drawn
    body = tf.ragged.boolean_mask(ids[:-1], kept | ~removed)
    return {
      "uid": example["uid"],
      "query": tf.concat(
        [[tokenizer.cls_id], query[: sequence_length["query"] - 2], [tokenizer.sep_id]], 0
      ),
      "title": ids[-1],
      "body": body.values,
    }

  with_sentences = dataset.filter(lambda example: tf.size(example["sentence_byte_start"]) > 0)
  return build(with_sentences).filter(lambda example: tf.size(example["body"]) > 0)
