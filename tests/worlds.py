"""The small world of end-to-end tests."""

import itertools

from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.input_files import find_files
from realm_jax.corpus.vocabulary import learn_vocabulary
from realm_jax.demo.make_almanac import make_almanac
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus


def make_corpora(root):
  """Writes `almanac`, `vocabulary`, and its corpora `passages` and `training`."""
  make_almanac(output=str(root / "almanac"), num_invented_entities=60, num_edits=6)
  documents, training = (str(root / "almanac" / f"{n}.jsonl") for n in ("documents", "training"))
  vocabulary = str(root / "vocabulary")
  files = itertools.chain(*find_files([documents, training]))
  learn_vocabulary([*files], vocab_size=1024).save(vocabulary)
  for source, name in ((documents, "passages"), (training, "training")):
    prepare_corpus(
      input=source,
      output=str(root / name),
      vocabulary=vocabulary,
      chunking=ChunkingConfig(max_passage_length=32),
      num_shards=1,
    )
