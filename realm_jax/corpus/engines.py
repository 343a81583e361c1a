"""What makes the parts of a corpus: processes of this machine, or an Apache Beam pipeline."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Literal

from realm_jax.corpus import local_pipeline
from realm_jax.corpus.input_files import InputFile
from realm_jax.corpus.local_pipeline import PartLog
from realm_jax.corpus.parts import CorpusPart, PartMaker
from realm_jax.foundations import choices, object_store, progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineConfig(choices.Checked):
  """What makes the parts of a corpus.

  Attributes:
    engine: "processes" on this machine, or an Apache "beam" pipeline.
    num_workers: Without Beam, number of processes that make passages, including this one.
    beam_options: Beam flags, such as `--runner=FlinkRunner`; empty uses Beam's local runner.
    beam_parts: Directory for intermediate parts that all Beam workers can reach; None uses a local
      one.
  """

  engine: Literal["processes", "beam"] = "processes"
  num_workers: choices.Count = 1
  beam_options: Sequence[str] = ()
  beam_parts: str | None = None

  def __post_init__(self):
    super().__post_init__()
    given = [f"--{name}" for name in ("beam_options", "beam_parts") if getattr(self, name)]
    if given and self.engine != "beam":
      raise ValueError(f"{', '.join(given)} without Beam; give --engine=beam")
    if self.engine == "beam":
      _beam_pipeline()  # refused before anything is read

  def make_parts(
    self, files: Sequence[InputFile], *, make_part: PartMaker, log: PartLog
  ) -> Iterator[CorpusPart]:
    """Yields the parts of the files in order; processes resume from the log."""
    if self.engine == "processes":
      return local_pipeline.make_parts(
        files, make_part=make_part, num_workers=self.num_workers, log=log
      )
    # Workers may run in other directories.
    files = [
      file
      if object_store.is_remote(file.path)
      else dataclasses.replace(file, path=os.path.abspath(file.path))
      for file in files
    ]
    parts = _beam_pipeline().make_parts(
      files, make_part=make_part, options=self.beam_options, directory=self.beam_parts
    )
    return progress.track(parts, what="passages", size=lambda part: len(part.rows))


def _beam_pipeline():
  try:
    from realm_jax.corpus import beam_pipeline
  except ImportError as error:
    raise ValueError(
      f"Apache Beam cannot be imported ({error}); install realm_jax with the extra `beam`"
    ) from error
  return beam_pipeline
