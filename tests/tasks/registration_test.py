import seqio

from realm_jax.corpus import tagged_examples
from realm_jax.corpus.passage_store import Passage
from realm_jax.tasks import salient_span_masking
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer


def make_corpus(directory, pieces=("a", "b")):
  directory.mkdir(parents=True)
  WordPieceTokenizer([*SPECIAL_TOKENS, *pieces]).save(directory / "vocabulary")
  writer = tagged_examples.TaggedExampleWriter(directory, num_shards=2)
  passage = Passage(title="", text="a b", uid=1, sentences=[(0, 3)], spans=[(0, 1)])
  writer.write(tagged_examples.serialize(passage))
  writer.close()
  return {"corpus": str(directory), "vocabulary": str(directory / "vocabulary")}


def test_a_corpus_is_registered_once_for_each_way_of_masking(tmp_path):
  given = make_corpus(tmp_path / "corpus")
  ways = ("salient_span", "random_span", "random_token")
  tasks = [salient_span_masking.register(**given, mask=mask) for mask in ways]
  assert len({task.name for task in tasks}) == 3
  assert [salient_span_masking.register(**given, mask=mask) for mask in ways] == tasks
  assert set(tasks[0].output_features) == {"query", "mlm_positions", "mlm_targets"}
  assert tasks[0].source.list_shards("train") == tagged_examples.files(given["corpus"])


def test_a_task_does_not_depend_on_the_current_directory(tmp_path, monkeypatch):
  make_corpus(tmp_path / "corpus")
  monkeypatch.chdir(tmp_path)
  task = salient_span_masking.register(corpus="corpus", vocabulary="corpus/vocabulary")
  (tmp_path / "elsewhere").mkdir()
  monkeypatch.chdir("elsewhere")
  again = salient_span_masking.register(corpus="../corpus", vocabulary="../corpus/vocabulary")
  assert again is task and len(list(task.source.get_dataset("train", shuffle=False))) == 1
  name = salient_span_masking.seqio_name
  remote = name("kind", "gs://a/b", WordPieceTokenizer([*SPECIAL_TOKENS, "a"]))
  monkeypatch.chdir("/")
  assert remote == name("kind", "gs://a/b", WordPieceTokenizer([*SPECIAL_TOKENS, "a"]))


def test_corpora_and_vocabularies_are_told_apart_by_name(tmp_path):
  names = {
    salient_span_masking.register(**make_corpus(tmp_path / name)).name
    for name in ("a-b", "a_b", "a b", "a.b", "a/b", "é")
  }
  assert len(names) == 6
  assert all(seqio.TaskRegistry.get(name) for name in names)
  one, other = (WordPieceTokenizer([*SPECIAL_TOKENS, piece]) for piece in "ab")
  name = salient_span_masking.seqio_name
  assert name("kind", "/c", one) == name("kind", "/c/", one)
  assert len({name("kind", "/c", one), name("kind", "/c", other), name("other", "/c", one)}) == 3
