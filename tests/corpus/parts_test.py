import os
import pickle
from collections import Counter

import numpy as np
import pytest

from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.documents import BadRecord, Document
from realm_jax.corpus.local_pipeline import ordered_map
from realm_jax.corpus.parts import PartMaker, is_list_or_disambiguation
from realm_jax.corpus.passage_store import Passage, passage_uid
from realm_jax.corpus.tagged_examples import serialize
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *"oslo is far . café".split()], lower_case=False)
RECORDS = (
  Document(id="1", title="Oslo", text="oslo is far.  café is far."),
  BadRecord(kind="broken_records", name="a:2"),
  Document(id="3", title="List of towns", text="oslo is far."),
  BadRecord(kind="records_without_text", name="a:4"),
)


def tag(text, language):
  return [(0, 4)]


def part_maker(*, drop_list_pages=True):
  return PartMaker(
    tokenizer=TOKENIZER,
    tag=tag,
    chunking=ChunkingConfig(max_sentences=1),
    drop_list_pages=drop_list_pages,
  )


def test_records_become_rows_examples_and_counts():
  part = part_maker()(RECORDS)
  assert [row.texts.decode() for row in part.rows] == ["oslo is far.", "café is far."]
  assert [row.titles for row in part.rows] == [b"Oslo"] * 2
  assert np.frombuffer(part.rows[0].body_ids, np.uint16).tolist() == [5, 6, 7, 8]
  uid = passage_uid("Oslo", "oslo is far.")
  assert part.rows[0].uid == uid
  passage = Passage(title="Oslo", text="oslo is far.", uid=uid, sentences=[(0, 12)], spans=[(0, 4)])
  assert part.examples[0] == serialize(passage)
  assert part.counts == Counter(
    documents=2, list_pages_dropped=1, broken_records=1, records_without_text=1
  )
  assert part.bad_records == [RECORDS[1], RECORDS[3]]


def test_another_process_makes_the_same_part():
  maker = part_maker()
  part = maker(RECORDS)  # TensorFlow Text's object is there by now
  again = pickle.loads(pickle.dumps(maker))
  assert again.tokenizer.digest == TOKENIZER.digest
  assert again(RECORDS) == part


@pytest.mark.parametrize(
  ("title", "text", "expected"),
  [
    ("List of rivers", "Rhine", True),
    ("Index of law articles", "A", True),
    ("Outline of France", "France", True),
    ("Mercury (disambiguation)", "Mercury", True),
    ("Mercury", "Mercury may refer to:\nMercury, a planet.", True),
    ("Hope", "Hope can also mean:\nHope, a town", True),
    ("AC", "AC can mean several things:\n", True),
    ("List of", "A poem.", False),
    ("list of rivers", "The rules heed capitals.", False),
    ("The List of Seven", "A novel.", False),
    ("Schindler's List of names", "A list.", False),
    ("Outliers", "A book.", False),
    ("Power", "Power is energy per time. It may refer to:", False),  # begins as an article does
    ("Silence", "Silence can also mean no communication.\nMore:", False),
    ("Will", "The will may mean a lot to heirs.\nIt may refer to:", False),
    ("", "", False),
  ],
)
def test_pages_that_only_list_others_are_told_by_rule(title, text, expected):
  assert is_list_or_disambiguation(title, text) is expected


def described(number):
  if number < 0:
    raise ValueError(f"{number} is below 0")
  return number * number, os.getpid()


def die_elsewhere(pid):
  if os.getpid() != pid:
    os._exit(1)


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_answers_come_in_the_order_of_the_items(num_workers):
  found = list(ordered_map(described, range(40), num_workers=num_workers))
  assert [square for square, _ in found] == [n * n for n in range(40)]
  here = os.getpid()
  assert len({pid for _, pid in found}) <= num_workers
  assert (num_workers == 1) == all(pid == here for _, pid in found)


def test_an_error_of_the_function_reaches_the_caller():
  with pytest.raises(ValueError, match="-1 is below 0"):
    list(ordered_map(described, [-1, 1, 2], num_workers=2))


def test_a_dead_worker_is_told_in_words():
  with pytest.raises(ChildProcessError, match="a worker process died.*lower --num_workers"):
    list(ordered_map(die_elsewhere, [os.getpid()] * 9, num_workers=2))
