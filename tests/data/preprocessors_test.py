import functools

import numpy as np
import pytest
import seqio
import tensorflow as tf

from realm_jax.corpus import tagged_examples
from realm_jax.corpus.passage_store import Passage
from realm_jax.data import preprocessors
from realm_jax.data.batches import REJECTIONS
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

PIECES = "the cat of par ##is saw zurich in 1969 . ᄒ ##ᅡ ##ᆫ".split()
TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *PIECES])
WITH_TOKENIZER = {"tokenizer": TOKENIZER}
LENGTHS = {"query": 10, "mlm_positions": 3, "mlm_targets": 3}
TEXT = "The cat of Paris saw Zürich. In 1969."


def byte_spans(text, parts):
  starts = [text.encode().index(part.encode()) for part in parts]
  return [(start, start + len(part.encode())) for start, part in zip(starts, parts, strict=True)]


def passage(text, *, sentences, spans, uid=7):
  bounds = {"sentences": byte_spans(text, sentences), "spans": byte_spans(text, spans)}
  return Passage(title="", text=text, uid=uid, **bounds)


def dataset(*passages):
  records = [tagged_examples.serialize(passage) for passage in passages]
  return preprocessors.parse_passages(tf.data.Dataset.from_tensor_slices(records))


def run(data, *steps, seed=0):
  with seqio.utils.map_seed_manager(seed):
    for step in steps:
      data = step(data)
  if "rejection" in data.element_spec:  # batches still
    data = data.unbatch()
  return list(data.as_numpy_iterator())


def with_tokenizer(step):
  return functools.partial(step, **WITH_TOKENIZER)


def build(data):
  return preprocessors.build_masked_query(data, LENGTHS, **WITH_TOKENIZER)


def salient(*passages, seed=0):
  return run(
    dataset(*passages),
    preprocessors.draw_salient_span,
    with_tokenizer(preprocessors.tokenize_sentence),
    with_tokenizer(preprocessors.mask_span),
    build,
    seed=seed,
  )


def random_masks(step, text, *, copies, seed=0):
  return run(
    dataset(*[passage(text, sentences=[text], spans=[])] * copies),
    preprocessors.draw_sentence,
    with_tokenizer(preprocessors.tokenize_sentence),
    with_tokenizer(step),
    seed=seed,
  )


def words(ids):
  return " ".join(TOKENIZER.vocabulary[i] for i in ids if i)


MASKED = [
  ("Paris", "[CLS] the cat of [MASK] [MASK] saw zurich . [SEP]", [4, 5], "par ##is"),
  ("cat", "[CLS] the [MASK] of par ##is saw zurich . [SEP]", [2], "cat"),
  ("Zürich", "[CLS] the cat of par ##is saw [MASK] . [SEP]", [7], "zurich"),
  ("1969", "[CLS] in [MASK] . [SEP]", [2], "1969"),
  # Only wordpieces that lie wholly inside the span.
  ("aris", "[CLS] the cat of par [MASK] saw zurich . [SEP]", [5], "##is"),
  ("at of Par", "[CLS] the cat [MASK] [MASK] ##is saw zurich . [SEP]", [3, 4], "of par"),
  # Masks past the third stay hidden and are not predicted.
  (
    "cat of Paris",
    "[CLS] the [MASK] [MASK] [MASK] [MASK] saw zurich . [SEP]",
    [2, 3, 4],
    "cat of par",
  ),
]


def test_the_wordpieces_of_a_span_are_masked():
  sentences = ["The cat of Paris saw Zürich.", "In 1969."]
  examples = salient(
    *[
      passage(TEXT, sentences=sentences, spans=[span], uid=i) for i, (span, *_) in enumerate(MASKED)
    ]
  )
  for i, (example, (span, query, positions, targets)) in enumerate(
    zip(examples, MASKED, strict=True)
  ):
    assert words(example["query"]) == query, span
    assert example["mlm_positions"].tolist() == positions + [0] * (3 - len(positions)), span
    assert words(example["mlm_targets"]) == targets, span
    assert example["mlm_weights"].tolist() == [1.0] * len(positions) + [0.0] * (3 - len(positions))
    assert example["source_uid"] == [i]
    assert example["rejection"] == 0


def test_a_character_of_several_wordpieces_is_masked_with_all_and_with_no_neighbour():
  # The first two wordpieces of the syllable are empty in bytes.
  text = "cat.한 the"
  before, inside = salient(*[passage(text, sentences=[text], spans=[span]) for span in (".", "한")])
  assert words(before["query"]) == "[CLS] cat [MASK] ᄒ ##ᅡ ##ᆫ the [SEP]"
  assert words(inside["query"]) == "[CLS] cat . [MASK] [MASK] [MASK] the [SEP]"


def test_a_long_passage_is_read_from_a_random_place():
  text = "the cat of Paris saw Zürich in 1969."
  examples = run(
    dataset(*[passage(text, sentences=[text], spans=[])] * 50),
    preprocessors.whole_passage,
    with_tokenizer(preprocessors.tokenize_sentence),
    functools.partial(preprocessors.crop, sequence_length={**LENGTHS, "query": 6}),
    with_tokenizer(preprocessors.mask_random_tokens),
  )
  (whole,) = TOKENIZER.encode_batch([text])
  windows = {tuple(example["ids"]) for example in examples}
  assert windows == {tuple(whole[i : i + 4]) for i in range(len(whole) - 3)}
  assert {int(example["masked"].sum()) for example in examples} == {1}


REJECTED = [
  (TEXT, ["In 1969."], [], "no_salient_span"),
  (TEXT, ["The cat of Paris saw Zürich.", "In 1969."], ["Zürich. In"], "no_salient_span"),
  (TEXT, [], ["Paris"], "no_salient_span"),
  (TEXT, ["The cat of Paris saw Zürich."], ["ari"], "no_wordpiece_in_span"),
  ("the the the the the the the the cat", None, ["cat"], "mask_cut_by_truncation"),
  ("the the the the the the the cat cat", None, ["cat cat"], "mask_cut_by_truncation"),
  ("the the the the the the the cat the", None, ["cat"], None),
]


def test_masks_that_could_not_be_predicted_are_rejected():
  examples = salient(
    *[
      passage(text, sentences=[text] if sentences is None else sentences, spans=spans)
      for text, sentences, spans, _ in REJECTED
    ]
  )
  found = [[None, *REJECTIONS][example["rejection"]] for example in examples]
  assert found == [reason for *_, reason in REJECTED]


def test_rejected_examples_are_dropped_and_counted_by_reason():
  good = passage("the cat", sentences=["the cat"], spans=["cat"])
  no_span = passage("the cat", sentences=["the cat"], spans=[])
  no_piece = passage("the cat", sentences=["the cat"], spans=["a"])
  data = dataset(no_span, good, no_piece, no_span, good, no_piece)
  examples = run(
    data,
    preprocessors.draw_salient_span,
    with_tokenizer(preprocessors.tokenize_sentence),
    with_tokenizer(preprocessors.mask_span),
    build,
    preprocessors.drop_rejected,
  )
  assert [example["rejections"].tolist() for example in examples] == [[1, 0, 0], [2, 1, 0]]
  assert all("rejection" not in example for example in examples)


def test_spans_are_drawn_uniformly_over_spans_not_sentences():
  text = "the cat of paris. In 1969."
  sentences = ["the cat of paris.", "In 1969."]
  example = passage(text, sentences=sentences, spans=["cat", "paris", "1969", "paris. In"])
  drawn = [words(e["mlm_targets"]) for e in salient(*[example] * 600)]
  counts = {name: drawn.count(name) for name in ("cat", "par ##is", "1969")}
  assert sum(counts.values()) == 600  # never the one that crosses a border
  assert all(150 < count < 250 for count in counts.values()), counts


def test_random_spans_are_whole_short_and_everywhere():
  text = " ".join(["the cat of paris saw zurich in 1969"] * 3)
  examples = random_masks(preprocessors.mask_random_span, text, copies=500)
  total = len(examples[0]["ids"])
  lengths, covered = [], np.zeros(total, int)
  for example in examples:
    places = np.flatnonzero(example["masked"])
    assert places.tolist() == list(range(places[0], places[-1] + 1))
    np.testing.assert_array_equal(
      example["masked_ids"],
      np.where(example["masked"], TOKENIZER.mask_id, example["ids"]),
    )
    lengths.append(len(places))
    covered += example["masked"]
  assert max(lengths) == 10
  # A geometric length of mean 5 cut at 10 has the mean (1 - 0.8^10) / 0.2.
  assert np.mean(lengths) == pytest.approx((1 - 0.8**10) / 0.2, abs=0.5)
  assert lengths.count(1) / 500 == pytest.approx(0.2, abs=0.07)
  assert covered.min() > 0


def test_random_tokens_are_a_share_of_the_sentence_masked_as_bert_does():
  text = " ".join(["the cat of paris saw zurich in 1969"] * 5)  # 45 wordpieces
  examples = random_masks(preprocessors.mask_random_tokens, text, copies=300)
  assert all(example["masked"].sum() == 7 for example in examples)  # 15 %
  outcome = {"mask": 0, "kept": 0, "replaced": 0}
  for example in examples:
    hidden = example["masked"]
    np.testing.assert_array_equal(example["masked_ids"][~hidden], example["ids"][~hidden])
    assert (example["masked_ids"] > 0).all()
    for new, old in zip(example["masked_ids"][hidden], example["ids"][hidden], strict=True):
      kept = "kept" if new == old else "replaced"
      outcome["mask" if new == TOKENIZER.mask_id else kept] += 1
  shares = {name: count / 2100 for name, count in outcome.items()}
  assert shares["mask"] == pytest.approx(0.8, abs=0.04)
  # Of the random tenth every 17th piece happens to be the old one or [MASK].
  assert shares["replaced"] == pytest.approx(0.1 * 15 / 17, abs=0.03)
  assert shares["kept"] == pytest.approx(0.1 + 0.1 / 17, abs=0.03)
  places = np.mean([example["masked"] for example in examples], axis=0)
  assert places.min() > 0.05 and places.max() < 0.3
