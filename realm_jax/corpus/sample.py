"""What is to be known of a corpus before it is read as a whole: a sample, and its languages."""

import itertools
from collections.abc import Callable, Sequence
from typing import BinaryIO

from realm_jax.corpus import reading
from realm_jax.corpus.documents import Document
from realm_jax.corpus.input_files import InputFile
from realm_jax.text import detection, tags

_FILES, _RECORDS = 256, 20_000  # read at most
_TEXTS = 500
_CHARACTERS = 5_000  # of a text


def languages(given: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
  """Returns the languages given as BCP 47 tags, or for "auto" those of a sample.

  Raises:
    ValueError: If a tag is malformed, or "auto" is not alone.
  """
  if "auto" not in given:
    return tags.parse_all(given)
  if len(given) > 1:
    raise ValueError(f"language={','.join(given)}: give auto alone, or all languages")
  return detection.languages_of(texts)


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
