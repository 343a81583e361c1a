import pytest

from realm_jax.corpus import salient_spans, tagged_examples
from realm_jax.corpus.passage_store import Passage, PassageStore, PassageStoreWriter, passage_uid
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

DOCUMENTS = {
  "Engine": [
    "Charles Babbage drew an analytical engine. It stood in London.",
    "Ada Lovelace wrote about the Analytical Engine of Babbage. She met Charles Babbage in 1833.",
    "Nothing was built. Rivers flow anyway.",
  ],
  "Thames": ["The river flows through London. It is long.", "Ships sail from London to the sea."],
  "Wood": ["Old trees stand in a wood."],
  "": ["A poem about the sea.", "A poem about the sea and ships."],
}


def write(directory, documents):
  """Writes documents, the texts of their passages by title, as a prepared corpus."""
  directory.mkdir()
  texts = [*documents, *(text for passages in documents.values() for text in passages)]
  words = sorted({word for text in texts for word in text.lower().replace(".", " ").split()})
  tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, *words, "."])
  tokenizer.save(directory / "vocabulary")
  rows = PassageStoreWriter(directory, tokenizer=tokenizer, max_passage_length=32)
  examples = tagged_examples.TaggedExampleWriter(directory, num_shards=2)
  for title, passages in documents.items():
    for text in passages:
      title_ids, body_ids = tokenizer.encode_batch([title, text])
      uid = passage_uid(title, text)
      rows.append(Passage(title=title, text=text, title_ids=title_ids, body_ids=body_ids, uid=uid))
      end = text.index(".") + 1
      sentences = [(0, end), *([(end + 1, len(text))] if end < len(text) else [])]
      spans = salient_spans.find_salient_spans(text)
      examples.write(
        tagged_examples.serialize(
          Passage(title=title, text=text, uid=uid, sentences=sentences, spans=spans)
        )
      )
  rows.finish(counts={})
  examples.close()
  return PassageStore(directory)


@pytest.fixture(scope="session")
def store(tmp_path_factory):
  """Documents of one to three passages."""
  return write(tmp_path_factory.mktemp("pairs") / "corpus", DOCUMENTS)


@pytest.fixture(scope="session")
def people(tmp_path_factory):
  """Documents of two passages, each of two sentences about one of sixty people."""
  documents = {
    f"t{i}": [
      f"In q{i} we met Name{i} Sur{i} there. The r{i} of Name{i} Sur{i} was s{i}.",
      f"Then u{i} saw Name{i} Sur{i} again. A v{i} with Name{i} Sur{i} had w{i}.",
    ]
    for i in range(60)
  }
  return write(tmp_path_factory.mktemp("people") / "corpus", documents)
