"""Watches for index generations and loads the newest while the previous one is in use.

A thread watches and loads. Between two steps the trainer swaps in the generation that is ready,
which only exchanges references. At most two generations are in memory: the next one is loaded only
after the swap. A generation that cannot be loaded is tried again, later each time; one that never
can be, because its content differs from its manifest or belongs to another corpus or run, is
reported and skipped. The old one stays in use. A mismatched generation is an error only if there is
no old one.
"""

import collections
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Literal, Protocol

from absl import logging

from realm_jax.devices import processes
from realm_jax.foundations import choices, progress
from realm_jax.index import generations
from realm_jax.index.vectors.searcher import Embeddings, Searcher, SearcherFactory

WhenLate = Literal["continue", "wait", "stop"]
OtherRuns = Literal["refuse", "accept"]
# What has become of the generation that was chosen, in one process.
_LOADING, _READY, _FAILED, _UNUSABLE = range(4)
_HOPELESS = (ValueError, generations.DamagedGenerationError, generations.ForeignGenerationError)
_LONGEST_DELAY = 300.0  # seconds between tries to load a generation


class StaleIndexError(RuntimeError):
  """The index is older than `max_staleness_steps`, and the run is configured to stop then."""


class Generations(Protocol):
  """Where generations come from."""

  def newest(self) -> int | None: ...

  def load(self, generation: int) -> "LoadedGeneration":
    """Loads a generation.

    Raises:
      ValueError: If its corpus, width or vocabulary differs.
      ForeignGenerationError: If it belongs to another run.
      DamagedGenerationError: If it differs from what was published.
      Exception: Anything else may be gone the next time.
    """
    ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadedGeneration:
  """A generation ready to be searched.

  Attributes:
    training_step: Training step of the parameters that embedded it.
    created: Time of publication in Unix seconds.
    embeddings_NxE: Its embeddings, if needed in addition to the searcher.
  """

  generation: int
  searcher: Searcher
  training_step: int
  created: float
  embeddings_NxE: Embeddings | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RefreshConfig(choices.Checked):
  """How the trainer follows the index builder.

  Attributes:
    poll_seconds: Time between checks for a new generation.
    max_staleness_steps: Steps that the index may lag behind; None sets no limit.
    when_late: What to do beyond the limit: "continue", "wait" for a newer generation, or "stop".
    other_runs: Whether to skip ("refuse") or use ("accept") generations built from checkpoints of
      other runs, such as the run that this one starts from.
    searcher: Makes the searcher of a generation's embeddings; None searches it as it was built.
  """

  poll_seconds: choices.PositiveOrZero = 5.0
  max_staleness_steps: choices.CountOrZero | None = None
  when_late: WhenLate = "continue"
  other_runs: OtherRuns = "refuse"
  searcher: SearcherFactory | None = None

  def __post_init__(self):
    super().__post_init__()
    if self.when_late != "continue" and self.max_staleness_steps is None:
      raise ValueError(f"when_late={self.when_late!r} needs max_staleness_steps")

  def check_reachable(self, *, checkpoint_every: int) -> None:
    """Checks that an index built from checkpoints this far apart can be recent enough."""
    limit = self.max_staleness_steps
    if self.when_late != "continue" and limit is not None and limit < checkpoint_every:
      raise ValueError(
        f"max_staleness_steps={limit} with checkpoint_every={checkpoint_every}: an index of a "
        "checkpoint cannot always be that fresh; raise the former or lower the latter"
      )


class IndexRefresher:
  """Keeps the newest loadable generation, or without `watch` the first one, ready to be searched.

  Use it as a context manager.
  """

  def __init__(self, generations: Generations, *, config: RefreshConfig, watch: bool = True):
    self._exchange = processes.Exchange()
    self._leads = processes.is_first()
    # The number of the try and the generation: chosen by the first process, loaded by all.
    self._choice: tuple[int, int] | None = None
    self._state = _LOADING  # of the choice, in this process
    self._num_tries = 0
    self._failures: collections.Counter[int] = collections.Counter()  # by generation
    self._next_try: dict[int, float] = {}
    self._generations = generations
    self._config = config
    self._watching = watch
    self._changed = threading.Condition()
    self._ready: LoadedGeneration | None = None
    self._misfit: ValueError | None = None  # of the newest generation
    self._closed = threading.Event()
    self._thread = threading.Thread(target=self._watch, name="index-refresher", daemon=True)
    self._current: LoadedGeneration | None = None
    self.swaps = 0

  def __enter__(self) -> "IndexRefresher":
    if self._watching:
      self._thread.start()
    return self

  def __exit__(self, *_):
    self._closed.set()
    if self._watching:
      self._thread.join()

  @property
  def current(self) -> LoadedGeneration:
    """The generation in use."""
    if self._current is None:
      raise RuntimeError("there is no index generation yet; wait for one with `first`")
    return self._current

  @progress.activities.during("index_wait")
  def first(self, *, wanted: int | None = None, stop: Callable[[], bool]) -> bool:
    """Waits for the first generation, or for the wanted one, and makes it `current`.

    Returns:
      True once it is loaded; False if `stop` returned True first.

    Raises:
      ValueError: If the wanted generation cannot be loaded, or the newest one has another corpus,
        width or vocabulary. A damaged one is not an error: it waits for a replacement.
    """
    if wanted is not None:
      with self._changed:
        self._current = self._generations.load(wanted)
      return True
    announced = False
    while not stop():
      if self.swap() is not None:
        return True
      if self._misfit is not None:
        raise self._misfit
      if not announced:
        logging.info(
          "waiting for the first index generation; `realm build_index --follow=true` builds it"
        )
        announced = True
      with self._changed:
        self._changed.wait(timeout=0.2)
    return False

  def swap(self) -> LoadedGeneration | None:
    """Makes the generation that is ready `current` if it is newer; never waits.

    The first of several processes chooses it, all load it at the same time, and all swap to it
    once all have loaded it.
    """
    with self._changed:
      told = [*(self._choice or (0, -1)), self._state]
    everyone = self._exchange(told)
    if everyone is None:
      return None
    with self._changed:
      tries, states = everyone[:, 0], everyone[:, 2]
      choice = (int(everyone[0, 0]), int(everyone[0, 1]))
      if choice[0] == 0 or (self._current is not None and choice[1] <= self._current.generation):
        choice = None  # or it was swapped in before this was sent
      if not self._leads:
        self._choose(choice)
      if choice is None or choice != self._choice:
        return None
      if (states[tries == choice[0]] >= _FAILED).any():
        if self._leads:
          self._give_up(forever=bool((states[tries == choice[0]] == _UNUSABLE).any()))
        return None
      if (tries != choice[0]).any() or (states != _READY).any():
        return None
      ready = self._ready
      self._choose(None)
      if self._current is not None:
        self.swaps += 1
      self._current = ready
    return ready

  def _choose(self, choice: tuple[int, int] | None) -> None:
    """Drops the previous choice, loaded or not."""
    if choice != self._choice:
      self._choice, self._state, self._ready = choice, _LOADING, None

  def _give_up(self, *, forever: bool) -> None:
    """Ends a try in the first process; the others follow when they are told."""
    if self._choice is None:
      return
    generation, longer = self._choice[1], 2 ** min(self._failures[self._choice[1]], 16)
    self._failures[generation] += 1
    delay = math.inf if forever else min(self._config.poll_seconds * longer, _LONGEST_DELAY)
    self._next_try[generation] = time.monotonic() + delay
    self._choose(None)

  def before_step(self, step: int, *, stop: Callable[[], bool]) -> Iterator[LoadedGeneration]:
    """Swaps in a generation that is ready, and applies `when_late` if the index is too old.

    Yields:
      Each generation swapped in; the last one stays. The caller must drop the previous one at once,
      because another one may be loaded next.

    Raises:
      StaleIndexError: If the index is too old and `when_late` is "stop".
    """
    yield from self._swapped()
    limit = self._config.max_staleness_steps
    if limit is None or self._config.when_late == "continue" or not self._watching:
      return
    announced = False
    while step - self.current.training_step > limit and not stop():
      if self._config.when_late == "stop":
        raise StaleIndexError(
          f"index generation {self.current.generation} is {self.staleness_steps(step)} steps old "
          f"at step {step}, more than max_staleness_steps={limit}; start `realm build_index` or "
          "raise the limit"
        )
      if not announced:
        logging.info(
          "step %d waits for an index: generation %d is from step %d, more than "
          "max_staleness_steps=%d ago",
          step,
          self.current.generation,
          self.current.training_step,
          limit,
        )
        announced = True
      with self._changed:
        self._changed.wait(timeout=0.2)
      yield from self._swapped()

  def _swapped(self) -> Iterator[LoadedGeneration]:
    if self.swap() is not None:
      yield self.current

  def staleness_steps(self, step: int) -> int:
    """Returns how many steps the current generation lags behind."""
    return step - self.current.training_step

  def age_seconds(self) -> float:
    """Returns the seconds since the current generation was published."""
    return time.time() - self.current.created

  def _watch(self) -> None:
    while not self._closed.is_set():
      if self._leads:
        self._choose_newest()
      self._load_chosen()
      self._closed.wait(self._config.poll_seconds)

  def _choose_newest(self) -> None:
    """Chooses the newest generation, unless one is chosen: a third would not fit into memory."""
    with self._changed:
      if self._choice is not None:
        return
      known = self._current
    try:
      newest = self._generations.newest()
    except Exception as error:  # an unreachable store must not end the watch
      logging.error("cannot list index generations, will retry: %s", _one_line(error))
      return
    if newest is None or (known and newest <= known.generation):
      return
    with self._changed:
      if time.monotonic() >= self._next_try.get(newest, 0.0):
        self._num_tries += 1
        self._choose((self._num_tries, newest))

  def _load_chosen(self) -> None:
    """Loads what is chosen, once for each choice."""
    with self._changed:
      choice = self._choice
      if choice is None or self._state != _LOADING:
        return
    try:
      loaded, error = self._generations.load(choice[1]), None
    except Exception as failure:  # a bad generation must not end the watch
      loaded, error = None, failure
      hopeless = isinstance(error, _HOPELESS)
      what = "not used" if hopeless else "cannot be loaded now, will retry"
      logging.error("index generation %d %s: %s", choice[1], what, _one_line(error))
    with self._changed:
      self._misfit = error if isinstance(error, ValueError) else None
      if self._choice != choice:  # given up in another process meanwhile
        return
      if loaded is not None:
        self._ready, self._state = loaded, _READY
        self._changed.notify_all()
      elif self._leads:
        self._give_up(forever=isinstance(error, _HOPELESS))
      else:
        self._state = _UNUSABLE if isinstance(error, _HOPELESS) else _FAILED


def _one_line(error: Exception) -> str:
  return " ".join(str(error).split()) or repr(error)
