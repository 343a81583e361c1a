import itertools

import numpy as np
import pytest

from realm_jax.data import input_pipeline
from realm_jax.data.token_labels import TokenLabelsConverter
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from tasks import ner

PIECES = "oslo is nice jose ##phine ##s .".split()
TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
CONTENT = """\
Oslo B-LOC
is O
nice O

Oslos B-LOC
\u200b I-LOC
Josephine I-PER
Jose. I-PER
"""


def register(directory, content=CONTENT, tags=TAGS):
  WordPieceTokenizer([*SPECIAL_TOKENS, *PIECES]).save(directory / "vocabulary")
  file = directory / "some.conll"
  file.write_text(content, encoding="utf-8")
  return ner.register(file=str(file), vocabulary=str(directory / "vocabulary"), tags=tags)


def examples(task, length):
  lengths = {"tokens": length, "labels": length}
  dataset = task.get_dataset(lengths, split="train", shuffle=False)
  vocabulary = [*SPECIAL_TOKENS, *PIECES]
  return [
    (" ".join(vocabulary[i] for i in e["tokens"].numpy()), e["labels"].numpy().tolist())
    for e in dataset
  ]


def test_the_first_wordpiece_of_a_word_has_its_label(tmp_path):
  task = register(tmp_path)
  assert examples(task, 16) == [
    ("[CLS] oslo is nice [SEP]", [0, 2, 1, 1, 0]),
    # The word that is no wordpiece takes its label with it.
    ("[CLS] oslo ##s jose ##phine jose . [SEP]", [0, 2, 0, 4, 0, 5, 0, 0]),
  ]
  assert task is register(tmp_path)
  assert task.num_input_examples("train") == 2


def test_a_long_sentence_is_cut(tmp_path):
  assert examples(register(tmp_path), 5) == [
    ("[CLS] oslo is nice [SEP]", [0, 2, 1, 1, 0]),
    ("[CLS] oslo ##s jose [SEP]", [0, 2, 0, 4, 0]),
  ]


def test_another_tag_is_refused(tmp_path):
  with pytest.raises(
    ValueError, match=r"has tags \['B-PER', 'I-PER'\] that are not among \['O', 'B-LOC'"
  ):
    register(tmp_path, tags=TAGS[:3])


def sorted_file(count):
  """Sentences of 1 to 14 words; the tags encode the position in the file."""
  sentences = []
  for place in range(count):
    words = place % 14 + 1
    sentences.append("\n".join(["oslo B-LOC"] + ["nice O"] * (words - 1)))
  return "\n\n".join(sentences)


def batches(directory, seed=0):
  return input_pipeline.task_batches(
    register(directory, sorted_file(84)),
    converter=TokenLabelsConverter(),
    lengths={"tokens": 12, "labels": 12},
    batch_size=4,
    seed=seed,
    training=True,
    buckets=(4, 8, 12),
  )


def test_a_batch_holds_sentences_of_similar_length(tmp_path):
  lengths = {}
  for batch in itertools.islice(batches(tmp_path), 60):
    assert batch["tokens"].shape == batch["labels"].shape
    rows, bucket = batch["tokens"].shape
    assert rows == 4
    real = (batch["tokens"] > 0).sum(axis=1)
    assert (real <= bucket).all()
    assert (real > bucket - 4).all()
    np.testing.assert_array_equal((batch["labels"] > 0).sum(axis=1), real - 2)
    lengths[bucket] = lengths.get(bucket, 0) + 1
  assert set(lengths) == {4, 8, 12}


def test_a_restored_iterator_goes_on_and_seeds_give_other_orders(tmp_path):
  first, second = batches(tmp_path), batches(tmp_path)
  for _ in range(25):
    next(first)
  position = first.position()
  expected = [next(first) for _ in range(20)]
  second.restore(position)
  for batch in expected:
    other = next(second)
    for name in batch:
      np.testing.assert_array_equal(batch[name], other[name])
  one, two = (
    [batch["tokens"].shape[1] for batch in itertools.islice(batches(tmp_path, seed), 20)]
    for seed in (1, 2)
  )
  assert one != two
