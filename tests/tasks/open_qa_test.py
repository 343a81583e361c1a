import json

import numpy as np
import pytest

from realm_jax.data import input_pipeline
from realm_jax.data.question_batches import question_batches
from realm_jax.tasks import open_qa
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

WORDS = [f"w{i}" for i in range(10)]
TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *WORDS])


def write(directory, texts):
  directory.mkdir(exist_ok=True)
  TOKENIZER.save(directory / "vocabulary")
  path = directory / "questions.jsonl"
  path.write_text("".join(json.dumps({"question": t, "answer": ["x"]}) + "\n" for t in texts))
  return {"questions": str(path), "vocabulary": str(directory / "vocabulary")}


def batches(task, *, batch_size, training, length=5, seed=0):
  return input_pipeline.task_batches(
    task,
    lengths={"query": length, "question_index": 1},
    batch_size=batch_size,
    seed=seed,
    training=training,
  )


def test_questions_come_in_order_cut_to_their_length(tmp_path):
  task = open_qa.register(**write(tmp_path, ["w0 w1", "w2 w3 w4 w5", "W6"]))
  first, second = batches(task, batch_size=2, training=False)
  assert [[TOKENIZER.vocabulary[i] for i in row] for row in first["query"]] == [
    ["[CLS]", "w0", "w1", "[SEP]", "[PAD]"],
    ["[CLS]", "w2", "w3", "w4", "[SEP]"],
  ]
  assert first["question_index"].tolist() == [[0], [1]]
  assert first["question_index"].dtype == np.int64
  assert (second["query"][0] > 0).sum() == 3 and not second["query"][1].any()


def test_every_epoch_has_all_questions_in_an_order_of_its_own_that_can_be_resumed(tmp_path):
  task = open_qa.register(**write(tmp_path, WORDS))
  iterator = batches(task, batch_size=5, training=True)
  epochs = [np.concatenate([next(iterator)["question_index"][:, 0] for _ in "ab"]) for _ in "abc"]
  assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
  assert len({tuple(epoch) for epoch in epochs}) == 3
  position = iterator.position()
  expected = [next(iterator)["question_index"].tolist() for _ in range(3)]
  resumed = batches(task, batch_size=5, training=True)
  resumed.restore(position)
  assert [next(resumed)["question_index"].tolist() for _ in range(3)] == expected
  assert next(batches(task, batch_size=10, training=True, seed=1))["question_index"].tolist() != [
    [i] for i in epochs[0]
  ]


@pytest.mark.parametrize(
  ("question", "pieces"),
  [
    ("w0 [MASK] w1", ["w0", "[MASK]", "w1"]),
    ("[MASK]", ["[MASK]"]),
    ("w1[MASK][MASK]w2", ["w1", "[MASK]", "[MASK]", "w2"]),
    ("w1 w2 w3 w4 [MASK]", ["w1", "w2", "w3", "w4"]),
    ("[MASK] w1 w2 w3 w4", ["[MASK]", "w1", "w2", "w3"]),
    ("[mask] w1", ["[UNK]", "[UNK]", "[UNK]", "w1"]),
  ],
)
def test_a_mask_in_a_question_is_trained_on_as_it_is_asked_with(question, pieces, tmp_path):
  task = open_qa.register(**write(tmp_path, ["w9", question]))
  (trained,) = batches(task, batch_size=2, training=False, length=6)
  asked, _ = next(
    question_batches(["w9", question], tokenizer=TOKENIZER, query_length=6, batch_size=2)
  )
  np.testing.assert_array_equal(trained["query"], asked.query.ids)
  row = [TOKENIZER.vocabulary[i] for i in trained["query"][1] if i]
  assert row == ["[CLS]", *pieces, "[SEP]"]
