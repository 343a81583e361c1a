"""SeqIO task of the questions in a file: NQ-open or any other."""

import functools
from collections.abc import Mapping

import seqio
import tensorflow as tf

from realm_jax.data.preprocessors import pad
from realm_jax.data.questions import read_questions, texts_digest
from realm_jax.tasks.salient_span_masking import seqio_name, wordpiece_feature
from realm_jax.text import tokenization
from realm_jax.text.wordpieces import MASK


def register(*, questions: str, vocabulary: str) -> seqio.Task:
  """Registers the questions of a file, unless they are registered already.

  An example has `query`, `[CLS] x [SEP]` truncated or padded, and `question_index`, the position
  in the file. In training every epoch has a different order.

  Args:
    questions: JSON Lines with `question` and `answer`.
    vocabulary: Directory with `vocab.txt`.

  Raises:
    FileNotFoundError: If one of them is missing.
    ValueError: If the questions are invalid, or are masked sentences.
  """
  tokenizer = tokenization.load(vocabulary)
  loaded = read_questions(questions)
  if loaded[0].span is not None:
    raise ValueError(f"{questions} has masked sentences, not questions")
  texts = [question.text for question in loaded]
  name = seqio_name(f"open_qa_{texts_digest(loaded)}", questions, tokenizer)
  if name in seqio.TaskRegistry.names():
    return seqio.TaskRegistry.get(name)
  return seqio.TaskRegistry.add(
    name,
    source=seqio.FunctionDataSource(functools.partial(_dataset, texts), splits=("train",)),
    preprocessors=[functools.partial(tokenize_question, tokenizer=tokenizer)],
    output_features={
      "query": wordpiece_feature(tokenizer),
      "question_index": seqio.Feature(
        seqio.PassThroughVocabulary(0), add_eos=False, dtype=tf.int64
      ),
    },
    shuffle_buffer_size=1,  # the source shuffles whole epochs
  )


def _dataset(
  texts: list[str], split: str, shuffle_files: bool = False, seed: int | None = None
) -> tf.data.Dataset:
  del split
  indices = tf.range(len(texts), dtype=tf.int64)
  dataset = tf.data.Dataset.from_tensor_slices({"text": texts, "question_index": indices})
  return dataset.shuffle(len(texts), seed=seed) if shuffle_files else dataset


def tokenize_question(
  dataset: tf.data.Dataset,
  sequence_length: Mapping[str, int],
  *,
  tokenizer: tokenization.WordPieceTokenizer,
) -> tf.data.Dataset:
  """Makes `query` of its length from `text`; a literal `[MASK]` is the mask token."""
  length = sequence_length["query"]

  def convert(example):
    parts = tf.strings.split(example["text"], sep=MASK)
    ids = tokenizer.tokenize_with_offsets(parts)[0]
    masks = tf.fill([tf.shape(parts)[0], 1], tokenizer.mask_id)
    ids = tf.concat([masks, ids], axis=1).flat_values[1:][: length - 2]
    return {
      "query": pad(tf.concat([[tokenizer.cls_id], ids, [tokenizer.sep_id]], 0), length),
      "question_index": example["question_index"][tf.newaxis],
    }

  return dataset.map(convert, num_parallel_calls=tf.data.AUTOTUNE)
