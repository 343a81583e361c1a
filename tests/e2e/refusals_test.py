"""What a person gets wrong ends, through the door, in one clear line and an exit code."""

import re

import pytest

from realm_jax import main
from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.jobs.preparation.learn_vocabulary import learn_vocabulary
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def elsewhere(world, tmp_path_factory):
  """Corpora that fit nothing else: of another vocabulary, without spans, without text."""
  root = tmp_path_factory.mktemp("elsewhere")
  documents = str(world / "almanac" / "documents.jsonl")
  (root / "nothing.jsonl").write_text("")
  (root / "plain.jsonl").write_text(
    '{"id": "1", "title": "it", "text": "it is as it was. so it was."}\n'
  )
  learn_vocabulary(inputs=[documents], output=str(root / "vocabulary"), vocab_size=900)
  for source, vocabulary, name in (
    (documents, root / "vocabulary", "other"),
    (root / "plain.jsonl", world / "vocabulary", "spanless"),
  ):
    prepare_corpus(
      input=str(source),
      output=str(root / name),
      vocabulary=str(vocabulary),
      chunking=ChunkingConfig(max_passage_length=32),
      num_shards=1,
    )
  return root


CASES = {
  # name: (job, keywords, bindings, exit code, the line)
  "a wrong gin name": (
    "pretrain",
    {},
    ("bert.BertConfig.hiden_size=3",),
    2,
    r"realm: --gin.bert.BertConfig.hiden_size=3: .*doesn't have a parameter named 'hiden_size'.*",
  ),
  "a wrong setting": (
    "pretrain",
    {},
    ("retriever.RetrievalConfig.num_passages=1",),
    2,
    r"realm: num_passages=1; give at least 2, the null passage and one more \(in RetrievalConfig\)",
  ),
  "a missing gin file": (
    "pretrain",
    {"gin_file": "{elsewhere}/absent.gin"},
    (),
    2,
    r"realm: \S*absent.gin: Unable to open file: .*",
  ),
  "missing passages": (
    "pretrain",
    {"passages": "{elsewhere}/absent"},
    (),
    1,
    r"realm pretrain: no passage store at \S*/absent; make one with `realm prepare_corpus`",
  ),
  "a missing training corpus": (
    "pretrain",
    {"corpus": "{elsewhere}/absent"},
    (),
    1,
    r"realm pretrain: no file matches '\S+/absent/examples-\S+'",
  ),
  "missing documents": (
    "prepare_corpus",
    {"input": "{elsewhere}/absent.jsonl", "vocabulary": "{world}/vocabulary"},
    (),
    1,
    r"realm prepare_corpus: .*absent\.jsonl.*",
  ),
  "a missing vocabulary": (
    "prepare_corpus",
    {"input": "{elsewhere}/plain.jsonl", "vocabulary": "{elsewhere}/absent"},
    (),
    1,
    r"realm prepare_corpus: .*absent.*",
  ),
  "missing checkpoints": (
    "build_index",
    {"checkpoints": "{elsewhere}/absent"},
    (),
    1,
    r"realm build_index: no checkpoint in \S*/absent; give WORKDIR/checkpoints of a .*",
  ),
  "a missing warm start": (
    "pretrain",
    {"retriever_checkpoints": "{elsewhere}/absent"},
    (),
    1,
    r"realm pretrain: no checkpoint in \S*/absent; give WORKDIR/checkpoints of a .*",
  ),
  "an empty corpus": (
    "prepare_corpus",
    {"input": "{elsewhere}/nothing.jsonl", "vocabulary": "{world}/vocabulary"},
    (),
    1,
    r"realm prepare_corpus: no text in \S*nothing\.jsonl.*",
  ),
  "a corpus without salient spans": (
    "pretrain",
    {"corpus": "{elsewhere}/spanless"},
    (),
    1,
    r"realm pretrain: \S+ yields no examples: .*",
  ),
  "a passage longer than the model's positions": (
    "pretrain",
    {},
    ("retriever.RetrievalConfig.passage_length=49",),
    1,
    r"realm pretrain: passage_length=49 exceeds the 48 positions of dual_encoder; lower .*",
  ),
  "query and passage longer than the reader's positions": (
    "pretrain",
    {},
    ("retriever.RetrievalConfig.joint_length=80",),
    1,
    r"realm pretrain: joint_length=80 exceeds the 48 positions of knowledge_augmented_enc.*",
  ),
  "a vocabulary larger than the model's": (
    "pretrain",
    {},
    ("bert.BertConfig.vocab_size=512",),
    1,
    r"realm pretrain: the vocabulary has \d+ wordpieces, but dual_encoder has vocab_size=512; .*",
  ),
  "an index of passages of another vocabulary than the checkpoint's": (
    "build_index",
    {"passages": "{elsewhere}/other"},
    (),
    1,
    r"realm build_index: \S+/first/checkpoints/0 was trained with vocabulary \w+, \S+/other has "
    r"\w+; prepare the corpus with the checkpoint's vocabulary",
  ),
  "a prediction from passages of another vocabulary than the checkpoint's": (
    "ask",
    {"passages": "{elsewhere}/other"},
    (),
    1,
    r"realm ask: \S+/first/checkpoints/0 was trained with vocabulary \w+, \S+/other has .*",
  ),
  "a warm start of another vocabulary": (
    "pretrain",
    {"passages": "{elsewhere}/other", "warm_start": "{world}/first/checkpoints"},
    (),
    1,
    r"realm pretrain: \S+/first/checkpoints/0 was trained with vocabulary \w+, the corpus has .*",
  ),
  "a run that goes on with another vocabulary": (
    "pretrain",
    {"passages": "{elsewhere}/other", "workdir": "{world}/first"},
    (),
    1,
    r"realm pretrain: \S+/first holds a run with another vocabulary_digest \(\w+, now \w+\); .*",
  ),
  "a run that goes on with another model": (
    "pretrain",
    {"workdir": "{world}/first"},
    ("bert.BertConfig.mlp_size=16",),
    1,
    r"realm pretrain: \S+/first/checkpoints/0 is a checkpoint of another model: params/.*",
  ),
  "a dual encoder from two checkpoints": (
    "pretrain",
    {
      "warm_start": "{world}/first/checkpoints",
      "retriever_checkpoints": "{world}/first/checkpoints",
      "num_steps": "1",
    },
    (),
    1,
    r"realm pretrain: dual_encoder would be taken from \S+/first/checkpoints and then .*",
  ),
  "no step between checkpoints": (
    "pretrain",
    {"checkpoint_every": "0"},
    (),
    2,
    r"realm: checkpoint_every=0; give at least 1 \(in RunConfig\)",
  ),
  "a checkpoint for an index that follows": (
    "build_index",
    {"follow": "true", "step": "0"},
    (),
    1,
    r"realm build_index: follow=True with step=0: it embeds the newest checkpoints; omit --step",
  ),
  "the index of a second model that is not given": (
    "serve",
    {"second_index": "i"},
    (),
    2,
    r"realm: --second_index would do nothing without .* --second_step \(in SecondModel\)",
  ),
  "an index that is not there": (
    "ask",
    {"index": "{elsewhere}/absent"},
    (),
    1,
    r"realm ask: no index generation in \S*/absent; build one with `realm build_index`",
  ),
  "a generation that is not there": (
    "pretrain",
    {"generation": "7", "num_steps": "1"},
    (),
    1,
    r"realm pretrain: generation 7 is not in \S*/index \(any more\); it has \[0\]",
  ),
  "a frozen dual encoder and the index of another": (
    "pretrain",
    {"generation": "0", "num_steps": "1", "seed": "1"},
    ("optimizer.OptimizerConfig.frozen_parts=('dual_encoder',)",),
    1,
    r"realm pretrain: generation 0 in \S*/index was built with another passage .*",
  ),
}
COMMON = {
  "pretrain": {
    "gin_file": "{world}/tiny.gin",
    "workdir": "{workdir}",
    "corpus": "{world}/training",
    "passages": "{world}/passages",
    "index": "{world}/index",
  },
  "prepare_corpus": {"output": "{workdir}/prepared"},
  "build_index": {
    "checkpoints": "{world}/first/checkpoints",
    "passages": "{world}/passages",
    "index": "{workdir}/index",
  },
  "serve": {},
  "ask": {
    "query": "a [MASK]",
    "checkpoints": "{world}/first/checkpoints",
    "passages": "{world}/passages",
    "index": "{world}/index",
  },
}


@pytest.mark.parametrize("name", CASES)
def test_it_ends_in_one_line(world, elsewhere, tmp_path, capfd, name):
  job, keywords, bindings, code, line = CASES[name]
  places = {"world": world, "elsewhere": elsewhere, "workdir": tmp_path}
  flags = {**COMMON[job], **keywords}
  arguments = [f"--{flag}={value.format(**places)}" for flag, value in flags.items()]
  assert main.main([job, *arguments, *(f"--gin.{binding}" for binding in bindings)]) == code
  shown = capfd.readouterr().err
  (complaint,) = [row for row in shown.splitlines() if row.startswith("realm")]
  assert shown.endswith(complaint + "\n")
  assert re.fullmatch(line, complaint), complaint
  assert "Traceback" not in shown


def test_a_demonstration_removes_nothing_that_is_not_its_own(tmp_path, capsys):
  (tmp_path / "thesis.txt").write_text("of years")
  command = ["demo", "--gin_file=gin/experiments/demo.gin", f"--workdir={tmp_path}"]
  assert main.main(command) == 1
  assert f"{tmp_path} has thesis.txt" in capsys.readouterr().err
  assert (tmp_path / "thesis.txt").read_text() == "of years"
