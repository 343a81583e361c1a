"""A sample of a corpus, from which its languages are told before it is read as a whole."""

import itertools
from collections.abc import Callable, Sequence
from typing import BinaryIO

from realm_jax.corpus import reading
from realm_jax.corpus.documents import Document
from realm_jax.corpus.input_files import InputFile

_FILES, _RECORDS = 256, 20_000  # read at most
_TEXTS = 500
_CHARACTERS = 5_000  # of a text


def sample_texts(
  files: Sequence[InputFile], *, open_file: Callable[[str], BinaryIO] = reading.open_file
) -> list[str]:
  """Returns the beginnings of up to 1,000 documents.

  They are spread evenly over the first 20,000 documents, which are taken from up to 256 files that
  are spread evenly as well.
  """
  files = files[:: -(-len(files) // _FILES)]
  texts: list[str] = []
  stride = 1
  count = 0
  for file in files:
    with open_file(file.path) as content:
      records = reading.read_records(content, file=file)
      for record in itertools.islice(records, -(-_RECORDS // len(files))):
        if not isinstance(record, Document):
          continue
        if count % stride == 0:
          texts.append(f"{record.title}\n{record.text[:_CHARACTERS]}")
        count += 1
        if len(texts) == 2 * _TEXTS:
          texts, stride = texts[::2], 2 * stride
  return texts
