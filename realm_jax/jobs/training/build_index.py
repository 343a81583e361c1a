"""Embeds the knowledge corpus with a checkpoint's passage encoder and publishes generations."""

import time

from absl import logging

from realm_jax.checkpoints.index_builder import IndexBuilder
from realm_jax.checkpoints.orbax_files import first_intact, steps
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices import directory_lock, processes
from realm_jax.foundations import choices
from realm_jax.index import generations, publication
from realm_jax.index.builder_config import POLL_SECONDS, BuilderConfig
from realm_jax.launching.stop_signal import STOPPED, StopSignal


def build_index(
  *,
  checkpoints: str,
  passages: str,
  index: str,
  step: choices.CountOrZero | None = None,
  follow: bool = False,
  until_step: choices.CountOrZero | None = None,
  builder: BuilderConfig = BuilderConfig(),
  poll_seconds: choices.PositiveOrZero = POLL_SECONDS,
  recheck_seconds: choices.PositiveOrZero = 600.0,
) -> None:
  """Publishes one generation, or follows a training run and publishes one per new checkpoint.

  Each of several processes embeds, indexes and writes its own part of the corpus. A killed
  builder continues with the passages that it has not embedded, if their checkpoint still exists.

  Args:
    checkpoints: The directory of the checkpoints, `WORKDIR/checkpoints` of a training run.
    passages: The directory of the prepared knowledge corpus.
    index: The directory of the generations. Only one job at a time may publish to it.
    step: The checkpoint to embed with; None uses the newest.
    follow: Whether to continue with each newer checkpoint until told to stop.
    until_step: With `follow`, stops after the generation of this step or a later one.
    builder: How the corpus is embedded and published.
    poll_seconds: Time between checks for a newer checkpoint.
    recheck_seconds: With `follow`, time between checks, while idle, that the newest generation is
      intact; a damaged one is rebuilt.

  Raises:
    DirectoryInUseError: If another job publishes to the index.
    ForeignGenerationError: If the index has generations of another corpus, vocabulary or run.
  """
  if follow and step is not None:
    raise ValueError(f"follow=True with step={step}: it embeds the newest checkpoints; omit --step")
  if until_step is not None and not follow:
    raise ValueError(f"until_step={until_step} needs --follow=true")
  generations.INDEX.check(index)
  publication.check_unfinished(index)
  store = PassageStore(passages)
  with directory_lock.hold(index, kind=generations.INDEX) as still_held:
    publication.check_corpus(index, store)
    index_builder = IndexBuilder(
      checkpoints=checkpoints,
      store=store,
      index=index,
      config=builder,
      still_held=still_held,
    )
    if follow:
      _follow(index_builder, until_step, poll_seconds=poll_seconds, recheck_seconds=recheck_seconds)
    else:
      if step is None:
        step = first_intact(checkpoints, steps(checkpoints)[::-1])
      index_builder.publish(step=processes.share(step)[0])


def _follow(
  index_builder: IndexBuilder,
  until_step: int | None,
  *,
  poll_seconds: float,
  recheck_seconds: float,
) -> None:
  """Publishes a generation for each newer checkpoint until told to stop; see `build_index`."""
  with StopSignal() as stopped:
    built = processes.share(index_builder.last_training_step())[0]
    idle = 0
    if not steps(index_builder.checkpoints):
      logging.info("waiting for a checkpoint in %s", index_builder.checkpoints)
    while True:
      wanted = index_builder.step_after(built) if processes.is_first() else None
      shared = processes.share([stopped(), wanted])
      if any(stop for stop, _ in shared):
        raise SystemExit(STOPPED)
      wanted = shared[0][1]
      if wanted is not None:
        built = wanted if index_builder.published(wanted) else built
      elif until_step is not None and built is not None and built >= until_step:
        return
      else:
        time.sleep(poll_seconds)
        idle += 1  # equal in all processes
        if idle % max(1, round(recheck_seconds / max(poll_seconds, 1e-3))) == 0:
          built = processes.share(index_builder.last_training_step(known=built))[0]
