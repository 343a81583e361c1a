import itertools
import json

from realm_jax.corpus import input_files, reading


def texts_of(directory):
  return reading.sample_texts(list(itertools.chain(*input_files.find_files([str(directory)]))))


def write(path, count, *, word):
  records = ({"title": f"{word} {i}", "text": f"{word} text {i}"} for i in range(count))
  path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_documents_are_spread_over_the_corpus(tmp_path):
  write(tmp_path / "a.jsonl", 700, word="a")
  write(tmp_path / "b.jsonl", 4_100, word="b")
  texts = texts_of(tmp_path)
  assert 500 <= len(texts) < 1_000
  numbers = [int(text.split()[-1]) for text in texts if text[0] == "b"]
  strides = {second - first for first, second in itertools.pairwise(numbers)}
  assert strides == {8}
  assert 700 // 8 <= sum(text[0] == "a" for text in texts) <= 700 // 8 + 1
  assert texts == texts_of(tmp_path)
