import numpy as np
import seqio
import tensorflow as tf

from realm_jax.data.preprocessors import build_inverse_cloze
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

PIECES = "the cat dog zurich is old . in 1969 town ᄒ ##ᅡ ##ᆫ".split()
TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *PIECES])
SENTENCES = ("The cat is old.", "The dog is in Zürich.", "1969.")
BODIES = ("the cat is old .", "the dog is in zurich .", "1969 .")


def offsets(text, parts):
  starts = [text.encode().index(part.encode()) for part in parts]
  limits = [start + len(part.encode()) for start, part in zip(starts, parts, strict=True)]
  return np.array(starts, np.int64), np.array(limits, np.int64)


def passage(sentences=SENTENCES, spans=(), title="Town"):
  text = "  ".join(sentences)
  sentence_start, sentence_limit = offsets(text, sentences)
  span_start, span_limit = offsets(text, spans)
  return {
    "uid": np.int64(5),
    "title": title,
    "text": text,
    "sentence_byte_start": sentence_start,
    "sentence_byte_limit": sentence_limit,
    "span_byte_start": span_start,
    "span_byte_limit": span_limit,
  }


def build(*passages, removal_rate, hide_salient_spans=False, query_length=20, seed=0):
  data = tf.data.Dataset.from_generator(
    lambda: iter(passages),
    output_signature={
      name: tf.TensorSpec([], tf.string)
      if isinstance(value, str)
      else tf.TensorSpec([None] * np.ndim(value), tf.int64)
      for name, value in passages[0].items()
    },
  )
  with seqio.utils.map_seed_manager(seed):
    data = build_inverse_cloze(
      data,
      {"query": query_length},
      tokenizer=TOKENIZER,
      removal_rate=removal_rate,
      hide_salient_spans=hide_salient_spans,
    )
  return [
    {name: words(example[name]) for name in ("query", "title", "body")}
    for example in data.as_numpy_iterator()
  ]


def words(ids):
  return " ".join(TOKENIZER.vocabulary[i] for i in ids)


def test_a_removed_sentence_is_missing_from_its_passage():
  examples = build(*[passage()] * 60, removal_rate=1.0)
  assert len(examples) == 60
  drawn = [f"{e['query']} | {e['body']}" for e in examples]
  expected = {
    f"[CLS] {query} [SEP] | {' '.join(body for body in BODIES if body != query)}"
    for query in BODIES
  }
  assert set(drawn) == expected
  assert all(8 < drawn.count(one) < 34 for one in expected)  # 20 each
  assert {e["title"] for e in examples} == {"town"}


def test_a_sentence_that_stays_is_found_in_its_passage():
  examples = build(*[passage()] * 20, removal_rate=0.0)
  assert {e["body"] for e in examples} == {" ".join(BODIES)}
  assert {e["query"] for e in examples} == {f"[CLS] {body} [SEP]" for body in BODIES}


def test_passages_that_would_be_empty_are_dropped():
  single, none = passage(SENTENCES[:1]), passage(SENTENCES[:1])
  none = {
    **none,
    "sentence_byte_start": np.array([], int),
    "sentence_byte_limit": np.array([], int),
  }
  several = passage(SENTENCES[:2])
  given = [single, none, several, none, single] * 4
  assert len(build(*given, removal_rate=1.0, hide_salient_spans=True)) == 4
  assert len(build(*given, removal_rate=0.0, hide_salient_spans=True)) == 12


def test_salient_spans_are_hidden_in_the_query_and_stay_in_the_passage():
  spans = ("cat", "Zürich", "1969", "e dog i")  # the last cuts through words
  examples = build(*[passage(spans=spans)] * 30, removal_rate=0.0, hide_salient_spans=True)
  assert {e["query"] for e in examples} == {
    "[CLS] the [MASK] is old . [SEP]",
    "[CLS] the [MASK] is in [MASK] . [SEP]",
    "[CLS] [MASK] . [SEP]",
  }
  assert {e["body"] for e in examples} == {" ".join(BODIES)}
