"""Learns a WordPiece vocabulary from documents."""

import itertools
from collections.abc import Sequence

from realm_jax.corpus import input_files, reading, sample
from realm_jax.corpus.documents import BadRecords
from realm_jax.text import tokenization, wordpieces


def learn_vocabulary(
  *,
  inputs: list[str],
  output: str,
  vocab_size: int = 30_522,
  language: Sequence[str] = ("auto",),
  lower_case: bool = True,
  format: input_files.Format = "auto",
) -> tokenization.WordPieceTokenizer:
  """Writes `output`: a Hugging Face tokenizer directory with `vocab.txt`.

  Args:
    inputs: Glob patterns or directories of files that `realm prepare_corpus` can read.
    output: Directory to write.
    vocab_size: Maximum number of wordpieces, including the five special tokens.
    language: Languages of the documents as BCP 47 tags; "auto" detects them in a sample. Combining
      marks carry meaning in most languages: only English text loses them, as in BERT.
    lower_case: Whether to lower-case text.
    format: Format of the inputs; "auto" infers it from the file names.

  Raises:
    FileNotFoundError: If a pattern matches no file.
    ValueError: If the inputs contain no text, or the format of a file is unknown.
  """
  wordpieces.VOCABULARY.check(output)
  files = list(itertools.chain(*input_files.find_files(inputs, format=format)))

  languages = sample.languages(language, sample.sample_texts(files))
  print(f"language: {', '.join(languages)}", flush=True)

  bad = BadRecords()

  def texts():
    nonlocal bad
    bad = BadRecords()  # of one pass over the texts, which are read several times
    for document in reading.read_documents(files, bad=bad):
      yield document.title
      yield document.text

  try:
    tokenizer = tokenization.learn(
      texts,
      vocab_size=vocab_size,
      lower_case=lower_case,
      strip_accents=lower_case and languages == ("en",),
    )
  finally:
    for line in bad.report():
      print(line, flush=True)
  wordpieces.VOCABULARY.check(output)
  tokenizer.save(output)
  print(f"{output}: {tokenizer.vocab_size:,} wordpieces, digest {tokenizer.digest}", flush=True)
  return tokenizer
