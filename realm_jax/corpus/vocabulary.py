"""A WordPiece vocabulary, learned from documents."""

from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from realm_jax.corpus import reading
from realm_jax.corpus.documents import BadRecords
from realm_jax.corpus.input_files import InputFile
from realm_jax.text import tokenization


def learn(
  files: Sequence[InputFile],
  *,
  vocab_size: int,
  lower_case: bool = True,
  languages: Sequence[str] = ("en",),
  open_file: Callable[[str], BinaryIO] = reading.open_file,
) -> tokenization.WordPieceTokenizer:
  """Learns a vocabulary from the documents of files, and names bad records if they have no text.

  Args:
    vocab_size: Maximum number of wordpieces, including the five special tokens.
    lower_case: Whether to lower-case text.
    languages: Those of the documents. Combining marks carry meaning in most: only English text
      loses them, as in BERT.

  Raises:
    ValueError: If there is no text, or `vocab_size` is smaller than the number of its characters.
  """
  bad = BadRecords()

  def texts() -> Iterator[str]:
    nonlocal bad
    bad = BadRecords()  # of one pass over the texts, which are read several times
    for document in reading.read_documents(files, bad=bad, open_file=open_file):
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
