"""Corpus building as an Apache Beam pipeline, for text that exceeds one machine.

Workers read files, make parts, and write each part under a name that sorts in input order. The
launching process then reads the parts in that order, so the store equals that of a single process.
Parts may be on any file system that Beam supports.
"""

import tempfile
import uuid
from collections.abc import Iterator, Sequence

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from realm_jax.corpus import reading
from realm_jax.corpus.documents import Record
from realm_jax.corpus.input_files import InputFile
from realm_jax.corpus.parts import CorpusPart, PartMaker

# Beam's default would first look for a runner to download.
_LOCAL_RUNNER = "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"


def make_parts(
  files: Sequence[InputFile],
  *,
  make_part: PartMaker,
  options: Sequence[str],
  directory: str | None,
) -> Iterator[CorpusPart]:
  """Runs the pipeline, then yields the parts in the order of the input.

  Without a runner among Beam's flags, everything runs in this process. All workers must be able to
  reach the directory of intermediate parts; None uses a local temporary one.
  """
  with tempfile.TemporaryDirectory(prefix="realm_parts_") as local:
    folder = FileSystems.join(directory or local, f"realm-parts-{uuid.uuid4().hex}")
    FileSystems.mkdirs(folder)
    try:
      arguments = [_LOCAL_RUNNER, *options]  # the last of two runners wins
      with beam.Pipeline(options=PipelineOptions(arguments)) as pipeline:
        _ = (
          pipeline
          | "Files" >> beam.Create(list(enumerate(files)))
          | "Read" >> beam.FlatMap(_read_batches)
          | "Spread" >> beam.Reshuffle()
          | "Make" >> beam.ParDo(_WritePart(make_part, folder))
        )
      found = FileSystems.match([FileSystems.join(folder, "part-*")])[0].metadata_list
      for path in sorted(metadata.path for metadata in found):
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
          yield CorpusPart.from_bytes(file.read())
    finally:
      FileSystems.delete([folder])


class _WritePart(beam.DoFn):
  """Writes one part for each batch of records."""

  def __init__(self, make_part: PartMaker, folder: str):
    self._make_part = make_part
    self._folder = folder

  def process(self, element: tuple[tuple[int, int], list[Record]]) -> None:
    (file, batch), records = element
    content = self._make_part(records).to_bytes()
    name = f"{file:08d}-{batch:08d}"
    unfinished = FileSystems.join(self._folder, f"unfinished-{name}-{uuid.uuid4().hex}")
    with FileSystems.create(unfinished, compression_type=CompressionTypes.UNCOMPRESSED) as target:
      target.write(content)
    # A batch that is retried gives the same bytes under the same name.
    FileSystems.rename([unfinished], [FileSystems.join(self._folder, f"part-{name}")])


def _read_batches(
  numbered_file: tuple[int, InputFile],
) -> Iterator[tuple[tuple[int, int], list[Record]]]:
  number, file = numbered_file
  with reading.open_file(file.path) as content:
    records = reading.read_records(content, file=file)
    # Larger than within one process, because each batch becomes a file.
    batches = reading.batches(records, max_records=2_000, max_characters=5_000_000)
    for batch, batch_records in enumerate(batches):
      yield (number, batch), batch_records
