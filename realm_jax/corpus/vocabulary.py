"""Reads the vocabulary of a corpus, or learns it from the corpus's files."""

import dataclasses
from collections.abc import Iterator, Sequence

from realm_jax.corpus.documents import BadRecords
from realm_jax.corpus.input_files import InputFile
from realm_jax.corpus.reading import read_documents
from realm_jax.foundations import choices, object_store
from realm_jax.text import tokenization, wordpieces


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyConfig(choices.Checked):
  """Whether to learn the vocabulary, from the same input, if its directory does not exist.

  Attributes:
    vocab_size: Maximum number of wordpieces, including the five special tokens; None learns none.
    lower_case: Whether a learned vocabulary lower-cases text.
  """

  vocab_size: choices.Count | None = None
  lower_case: bool = True

  def tokenizer(
    self, directory: str, files: Sequence[InputFile], *, languages: Sequence[str]
  ) -> tokenization.WordPieceTokenizer:
    """Reads the vocabulary, or else learns and writes it."""
    size = self.vocab_size
    if size is None or (object_store.absolute(directory) / tokenization.VOCABULARY_FILE).exists():
      found = tokenization.load(directory)
      if size is not None and found.vocab_size > size:
        raise ValueError(
          f"{directory} has {found.vocab_size:,} wordpieces, more than vocab_size={size}; give "
          "another directory, or omit the size"
        )
      return found
    wordpieces.VOCABULARY.check(directory)
    learned = learn_vocabulary(
      files, vocab_size=size, lower_case=self.lower_case, languages=languages
    )
    learned.save(directory)
    print(f"{directory}: {learned.vocab_size:,} wordpieces, digest {learned.digest}", flush=True)
    return learned


def learn_vocabulary(
  files: Sequence[InputFile],
  *,
  vocab_size: int,
  lower_case: bool = True,
  languages: Sequence[str] = ("en",),
) -> tokenization.WordPieceTokenizer:
  """Learns a vocabulary from the documents of files, and names bad records if they have no text.

  Combining marks carry meaning in most languages: only English text loses them, as in BERT.

  Raises:
    ValueError: If there is no text, or `vocab_size` is smaller than the number of its characters.
  """
  bad = BadRecords()

  def texts() -> Iterator[str]:
    nonlocal bad
    bad = BadRecords()  # of one pass over the texts, which are read several times
    for document in read_documents(files, bad=bad):
      yield document.title
      yield document.text

  strip_accents = lower_case and tuple(languages) == ("en",)
  try:
    return tokenization.learn(
      texts, vocab_size=vocab_size, lower_case=lower_case, strip_accents=strip_accents
    )
  except ValueError:
    for line in bad.report():
      print(line, flush=True)
    raise
