import pickle
from collections import Counter

import numpy as np

from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.documents import BadRecord, Document
from realm_jax.corpus.parts import PartMaker
from realm_jax.corpus.passage_store import passage_uid
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


def serialize(passage):
  return repr((passage.title, passage.text, passage.uid, passage.sentences, passage.spans)).encode()


def part_maker(*, drop_list_pages=True):
  return PartMaker(
    tokenizer=TOKENIZER,
    tag=tag,
    serialize=serialize,
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
  assert part.examples[0] == repr(("Oslo", "oslo is far.", uid, ((0, 12),), ((0, 4),))).encode()
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
