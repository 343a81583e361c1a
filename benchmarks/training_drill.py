"""Trainings that everything happens to: do they end as if nothing had?

A trainer and an index builder of the almanac are killed again and again (SIGKILL) and started anew;
some kills are timed to hit a checkpoint, a generation half-written, or a swap. Published
generations are torn and cut short before the trainer reads them. On a disk the disk fills up; in an
object store (an emulated one on loopback) requests are refused with 503 or take long.

Then every step must be there once, every generation that was used whole, and the losses those of a
training that nothing happened to, given the same generations at the same steps.

A drill of many kills is several trainings of `--kills_per_run` each. With `--output`, the same
command goes on after those that the file has. `failure_drill.py` runs this.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from unittest import mock

import jax

from realm_jax import main as realm
from realm_jax.checkpoints import orbax_files
from realm_jax.corpus import chunking, vocabulary
from realm_jax.demo.make_almanac import make_almanac
from realm_jax.devices import backend
from realm_jax.foundations import object_store
from realm_jax.index import generations
from realm_jax.jobs.preparation import prepare_corpus, prepare_examples
from realm_jax.launching.supervisor import sigterm_interrupts
from realm_jax.retrieval import index_refresher
from realm_jax.training.recipes import examples
from realm_jax.training.run import training_run
from realm_jax.training.run.metric_writers import METRICS_FILE, SWAPS_FILE

if TYPE_CHECKING:
  from tests.emulated_gcs import EmulatedGcs

CHECKPOINT_EVERY = 10
MAX_STALENESS = 30
_TINY_MODEL = pathlib.Path(__file__).parents[1] / "gin" / "jobs" / "tiny.gin"
_BATCH_SIZE = 8  # of the tiny model
_NUM_DOCUMENTS = 100  # so that a generation takes moments
_SETTINGS = f"""
from __gin__ import dynamic_registration
include "{_TINY_MODEL}"
from realm_jax.retrieval import index_refresher
from realm_jax.training.run import training_config
index_refresher.RefreshConfig.poll_seconds = 0.05
index_refresher.RefreshConfig.max_staleness_steps = {MAX_STALENESS}
index_refresher.RefreshConfig.when_late = "wait"
training_config.RunConfig.checkpoint_every = {CHECKPOINT_EVERY}
training_config.RunConfig.keep_checkpoints = 1000
"""
_BUILDER = """
from __gin__ import dynamic_registration
from realm_jax.index import builder_config
from realm_jax.jobs.training import build_index
builder_config.BuilderConfig.keep = 1000
build_index.build_index.poll_seconds = 0.05
build_index.build_index.recheck_seconds = 1.0
build_index.build_index.follow = True
"""
_WHOLE_RUN_SECONDS = 3600
_MOST_RESTARTS = 200  # of a process in a run
_FULL_DISK_SECONDS = 4
_BAD_STORE_SECONDS = 6
_SWAP_SECONDS = 0.3  # from the publication to the first step that uses it, at most

# Its processes are copies of one that has imported what jobs import, at once or late, and has
# neither threads (pyarrow, which pandas imports, would start one) nor a backend.
os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
_JOBS = multiprocessing.get_context("forkserver")
_JOBS.set_forkserver_preload(
  [
    "realm_jax.jobs.training.pretrain",
    "realm_jax.knowledge_base.knowledge_base",
    "realm_jax.jobs.training.build_index",
    "realm_jax.data.input_pipeline",
    "realm_jax.tasks.salient_span_masking",
    "jaxlib.mlir.dialects.mhlo",
    "gcp_storage_emulator.server",
  ]
)


def _run_job(arguments: list[str], log: str) -> None:
  """Runs `realm` in a copied process."""
  with open(log, "ab") as file:
    for stream in (sys.stdout, sys.stderr):
      os.dup2(file.fileno(), stream.fileno())
  threads = os.listdir(f"/proc/{os.getppid()}/task")
  if len(threads) > 1:
    raise RuntimeError(f"the process that was copied has {len(threads)} threads")
  sys.exit(realm.main(arguments))


class _EndedError(Exception):
  """The training came to its end before this could happen to it."""


@dataclasses.dataclass(frozen=True)
class World:
  """What all runs share.

  Attributes:
    directory: Local directory of the configuration; without a store also of corpora and runs.
    store: Has corpora and runs; None for a disk.
  """

  directory: str
  store: "EmulatedGcs | None"

  @property
  def root(self) -> str:
    """The directory of corpora and runs."""
    return self.directory if self.store is None else self.store.root

  def prepare(self, *, num_steps: int) -> None:
    """Makes corpora, examples for runs of so many steps, and the configuration."""
    here = self.directory
    make_almanac(output=f"{here}/almanac", num_invented_entities=60, num_edits=6, seed=0)
    texts = {"training": f"{here}/almanac/training.jsonl", "passages": f"{here}/documents.jsonl"}
    with open(f"{here}/almanac/documents.jsonl", "rb") as file:
      documents = itertools.islice(file, _NUM_DOCUMENTS)
      pathlib.Path(texts["passages"]).write_bytes(b"".join(documents))
    for name, path in texts.items():
      prepare_corpus.prepare_corpus(
        input=path,
        output=f"{here}/{name}",
        vocabulary=f"{here}/vocabulary",
        learning=vocabulary.VocabularyConfig(vocab_size=1024),
        chunking=chunking.ChunkingConfig(max_passage_length=32),
        num_shards=1,
      )
    prepare_examples.prepare_examples(
      task="masked_queries",
      corpus=f"{here}/training",
      output=f"{here}/examples",
      settings=examples.ExampleSettings(query_length=32, max_masks=3),
      reading=examples.ReadingOrder(num_examples=(num_steps + 1) * _BATCH_SIZE),
    )
    if self.store is not None:
      for name in ("passages", "training", "examples"):
        object_store.upload(f"{here}/{name}", f"{self.root}/{name}")
    pathlib.Path(here, "trainer.gin").write_text(_SETTINGS)
    pathlib.Path(here, "builder.gin").write_text(_BUILDER)


class Drill:
  """One run and what happens to it.

  Args:
    world: Has its corpora.
    num_steps: Steps of the run.
    seed: Seeds times and victims. Runs of odd seeds read prepared examples.
  """

  def __init__(self, world: World, *, num_steps: int, seed: int):
    self.world, self.name, self.num_steps = world, f"run_{seed}", num_steps
    self.corpus = f"{world.root}/{'examples' if seed % 2 else 'training'}"
    self.directory = pathlib.Path(world.directory, self.name)
    self.directory.mkdir()
    self.index = f"{world.root}/{self.name}/index"
    self.workdir = f"{world.root}/{self.name}/run"
    self.happened: Counter[str] = Counter()
    self.restarts: Counter[str] = Counter()
    self.damaged: list[int] = []
    self._random = random.Random(seed)
    self._running: dict[str, multiprocessing.Process] = {}

  def run(self, events: list[tuple[int, str]]) -> None:
    """Trains to the end while each event happens once its step is reached, if it comes to that.

    Raises:
      RuntimeError: If the run does not come to its end, or a process ends again and again.
    """
    started = time.monotonic()
    waiting = list(events)
    while True:
      if time.monotonic() - started > _WHOLE_RUN_SECONDS:
        raise RuntimeError(f"no end after {_WHOLE_RUN_SECONDS} s, at step {self._reached()}")
      if self._keep_running():
        break
      if waiting and self._reached() >= waiting[0][0]:
        _, name = waiting.pop(0)
        try:
          EVENTS[name](self)
        except _EndedError:
          break
        self.happened[name] += 1
        print(f"  step {self._reached():4d}: {name}", flush=True)
      time.sleep(0.05)

  def end(self) -> None:
    """Ends what still runs."""
    for process in self._running.values():
      process.kill()
      process.join()

  def _keep_running(self, *names: str) -> bool:
    """Starts what does not run; returns whether the trainer has finished."""
    for name in names or ("trainer", "builder"):
      process = self._running.get(name)
      if process is not None and process.exitcode is None:
        continue
      if process is not None and process.exitcode == 0:
        if name == "trainer":
          return True
        continue
      if process is not None:
        self.restarts[f"restarts of the {name}"] += 1
        if self.restarts[f"restarts of the {name}"] > _MOST_RESTARTS:
          log = (self.directory / f"{name}.log").read_text().strip().rpartition("\n")[2]
          raise RuntimeError(f"the {name} ended {_MOST_RESTARTS} times: {log}")
      log = os.fspath(self.directory / f"{name}.log")
      self._running[name] = _JOBS.Process(target=_run_job, args=(self.command(name), log))
      self._running[name].start()
    return False

  def command(self, name: str) -> list[str]:
    """Returns the arguments of the trainer or the builder."""
    if name == "builder":
      keywords = {"checkpoints": f"{self.workdir}/checkpoints", "until_step": self.num_steps}
    else:
      keywords = {
        "workdir": self.workdir,
        "corpus": self.corpus,
        "num_steps": self.num_steps,
      }
    keywords |= {"passages": f"{self.world.root}/passages", "index": self.index}
    return [
      "build_index" if name == "builder" else "pretrain",
      f"--gin_file={self.world.directory}/{name}.gin",
      *(f"--{keyword}={value}" for keyword, value in keywords.items()),
    ]

  def _reached(self) -> int:
    """Returns the step of the newest checkpoint."""
    return max(self._named("run/checkpoints"), default=0)

  def _named(self, where: str) -> Iterator[int]:
    """Yields the numbers of finished checkpoints or generations, cheaply."""
    if self.world.store is None:
      names = (path.name for path in (self.directory / where).glob("*"))
    else:
      found = (pathlib.PurePath(name) for name in self.world.store.names())
      pattern = f"{self.name}/{where}/*/commit_success.txt"
      names = (path.parent.name for path in found if path.match(pattern))
    return (int(name) for name in names if name.isdigit())

  def _half_written(self, where: str) -> bool:
    """Returns whether a checkpoint or generation is being written."""
    if self.world.store is None:
      return any((self.directory / where).glob("*.orbax-checkpoint-tmp*"))
    under_way, finished = set(), set()
    inside = f"{self.name}/{where}/"
    for name in self.world.store.names():
      parts = name.removeprefix(inside).split("/")
      if name.startswith(inside) and len(parts) > 1:
        (finished if parts[1] == "commit_success.txt" else under_way).add(parts[0])
    return bool(under_way - finished)

  def _kill(self, name: str) -> None:
    # A victim that is just starting is one, too.
    if self._keep_running():
      raise _EndedError
    self._running[name].kill()
    self._running[name].join()

  def kill_any_time(self, name: str) -> None:
    time.sleep(self._random.uniform(0, 2))
    self._kill(name)

  def kill_in_the_middle(self, name: str, where: str) -> None:
    """Kills a process while it writes a checkpoint or a generation."""
    self._await(lambda: self._half_written(where))
    self._kill(name)

  def kill_in_a_swap(self) -> None:
    """Kills the trainer when there is a new generation for it to use."""
    before = self._generations()
    self._await(lambda: self._generations() > before)
    time.sleep(self._random.uniform(0, _SWAP_SECONDS))
    self._kill("trainer")

  def _await(self, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition() and not self._keep_running() and time.monotonic() < deadline:
      time.sleep(0.0005)

  def damage_next_generation(self, how: Callable[[bytes], bytes]) -> None:
    """Changes an array of the next generation before the trainer can have seen it."""
    number = None
    while number is None:
      if self._keep_running():
        raise _EndedError
      trainer = self._running["trainer"].pid
      os.kill(trainer, signal.SIGSTOP)
      number = self._next_generation()
      if number is not None:
        self._damage(number, how)
        self.damaged.append(number)
      os.kill(trainer, signal.SIGCONT)
      # Where the builder had nothing to do, the trainer must save first.
      time.sleep(self._random.uniform(0.2, 1))

  def _next_generation(self) -> int | None:
    """Waits for a generation that is not there yet."""
    before = self._generations()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
      if new := self._generations() - before:
        return max(new)
      self._keep_running("builder")
      time.sleep(0.002)
    return None

  def _generations(self) -> set[int]:
    return set(self._named("index"))

  def _damage(self, number: int, how: Callable[[bytes], bytes]) -> None:
    store, inside = self.world.store, f"index/{number}"
    if store is not None:
      inside = f"{self.name}/{inside}/"
      files = [n for n in store.names() if n.startswith(inside) and n.endswith(".bin")]
      longest = max(files, key=lambda name: len(store.read(name)))
      store.write(longest, how(store.read(longest)))
      return
    paths = (self.directory / inside).rglob("*")
    files = (path for path in paths if path.is_file() and path.suffix == ".bin")
    longest = max(files, key=lambda path: path.stat().st_size)
    longest.write_bytes(how(longest.read_bytes()))

  def fill_the_disk(self) -> None:
    filler = self.directory / "filler"
    with open(filler, "wb") as file, contextlib.suppress(OSError):
      while True:
        file.write(bytes(1 << 20))
        file.flush()
    self._go_on(_FULL_DISK_SECONDS)
    filler.unlink()

  def refuse_requests(self) -> None:
    self.world.store.refuse(lambda method, path: self._random.random() < 0.1)
    self._go_on(_BAD_STORE_SECONDS)
    self.world.store.refuse(lambda method, path: False)

  def slow_down(self) -> None:
    self.world.store.delay = 0.1
    self._go_on(_BAD_STORE_SECONDS)
    self.world.store.delay = 0.0

  def _go_on(self, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
      self._keep_running()
      time.sleep(0.1)

  def rows(self, name: str) -> list[dict]:
    """Returns what the run appended to a file."""
    text = object_store.Path(f"{self.workdir}/{name}").read_text()
    return [json.loads(line) for line in text.splitlines()]

  def generation_of_each_batch(self) -> list[int]:
    """Returns the generation that the batch of each step was retrieved with."""
    found = []
    for row in self.rows(METRICS_FILE):
      step = row["step"] - 1
      if "index/generation" in row:
        found.append(int(row["index/generation"]))
      elif step == 0:
        started = [row for row in self.rows(SWAPS_FILE) if row["step"] == 0]
        found.append(started[-1]["generation"])
      else:  # the batch in flight of the checkpoint that the run went on from
        path = orbax_files.resolve(f"{self.workdir}/checkpoints", step=step)
        found.append(orbax_files.read_metadata(path)["generation"])
    return found

  def losses_undisturbed(self, schedule: list[int]) -> list[float]:
    """Trains in this process, in one go, with the generation given for each batch."""

    class Scheduled(index_refresher.IndexRefresher):
      """Gives the generations of a schedule."""

      def first(self, *, wanted=None, stop):
        del wanted, stop
        self._current = self._generations.load(schedule[0])
        return True

      def before_step(self, step, *, stop):
        del stop
        if step < len(schedule) and schedule[step] != self.current.generation:
          self._current = self._generations.load(schedule[step])
          yield self.current

    workdir = f"{self.directory}/undisturbed"
    command = [a for a in self.command("trainer") if not a.startswith("--workdir=")]
    command += [f"--workdir={workdir}", "--generation=0", f"--checkpoint_every={self.num_steps}"]
    with contextlib.ExitStack() as stack:
      stack.enter_context(mock.patch.object(training_run, "IndexRefresher", Scheduled))
      log = stack.enter_context(open(f"{workdir}.log", "w", encoding="utf-8"))
      stack.enter_context(contextlib.redirect_stdout(log))
      stack.enter_context(contextlib.redirect_stderr(log))
      code = realm.main(command)
    if code:
      raise RuntimeError(f"the undisturbed training ended with exit code {code}")
    with open(f"{workdir}/{METRICS_FILE}", encoding="utf-8") as file:
      return [json.loads(line)["loss/total"] for line in file]

  def findings(self) -> dict[str, int]:
    """Compares the run with what it must be."""
    rows = self.rows(METRICS_FILE)
    schedule = self.generation_of_each_batch()
    published = generations.all_generations(self.index)
    whole = [number for number in published if _is_whole(self.index, number)]
    swaps = [row["generation"] for row in self.rows(SWAPS_FILE)]
    undisturbed = self.losses_undisturbed(schedule)
    losses = [row["loss/total"] for row in rows]
    left = [
      name
      for name in ("index", "run/checkpoints")
      if self.world.store is None and any((self.directory / name).glob("*tmp*"))
    ]
    steps, last = (
      [row["step"] for row in rows],
      orbax_files.steps(f"{self.workdir}/checkpoints")[-1],
    )
    asked = [*range(1, self.num_steps + 1)]
    return {
      "steps": len(steps),
      "wrong: steps lost or written twice": int((steps, last) != (asked, self.num_steps)),
      "generations published": len(published),
      "generations damaged": len(self.damaged),
      "generations used": len(set(swaps)),
      "wrong: damaged generations used": len(set(swaps) & set(self.damaged)),
      "wrong: unfinished generations used": len(set(swaps) - set(whole)),
      "wrong: damaged generations not recognised": len(set(self.damaged) & set(whole)),
      "wrong: losses unlike the undisturbed training's": sum(
        a != b for a, b in zip(losses, undisturbed, strict=True)
      ),
      "wrong: half-written and left behind": len(left),
    }


EVENTS: dict[str, Callable[[Drill], None]] = {
  "trainer killed at any time": lambda drill: drill.kill_any_time("trainer"),
  "trainer killed in mid-checkpoint": lambda drill: drill.kill_in_the_middle(
    "trainer", "run/checkpoints"
  ),
  "trainer killed around a swap": Drill.kill_in_a_swap,
  "builder killed at any time": lambda drill: drill.kill_any_time("builder"),
  "builder killed in mid-publication": lambda drill: drill.kill_in_the_middle("builder", "index"),
  "generation torn": lambda drill: drill.damage_next_generation(_flip),
  "generation cut short": lambda drill: drill.damage_next_generation(lambda b: b[: len(b) // 2]),
  "disk full": Drill.fill_the_disk,
  "503s": Drill.refuse_requests,
  "store slow": Drill.slow_down,
}
_KILLS = [name for name in EVENTS if "killed" in name]


def _flip(content: bytes) -> bytes:
  middle = len(content) // 2
  return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def _is_whole(index: str, number: int) -> bool:
  try:
    shards = len(generations.read_manifest(index, number).shard_rows)
    for shard in range(shards):
      generations.restore(index, number, shard)
  except generations.DamagedGenerationError:
    return False
  return True


def draw_events(
  arguments: argparse.Namespace, *, kills: int, seed: int
) -> Iterator[tuple[int, str]]:
  """Yields what happens from which step on: kills of every kind, damages, what the store does."""
  draw = random.Random(seed)
  names = [*itertools.islice(itertools.cycle(_KILLS), min(kills, arguments.kills_per_run))]
  names += [name for name in EVENTS if name.startswith("generation")] * arguments.damages
  names += ["disk full"] if arguments.store == "disk" else ["503s", "store slow"]
  draw.shuffle(names)
  last = arguments.num_steps - 2 * MAX_STALENESS
  return zip(sorted(draw.sample(range(1, last), len(names))), names, strict=True)


def drill_once(drill: Drill, events: list[tuple[int, str]]) -> Counter[str]:
  """Runs one training through its events and examines it."""
  store = drill.world.store
  before = _requests(store)
  started = time.monotonic()
  try:
    drill.run(events)
  finally:
    drill.end()
  seconds = {"seconds": round(time.monotonic() - started)}
  requests = {name: count - before[name] for name, count in _requests(store).items()}
  return Counter({**drill.happened, **drill.restarts, **seconds, **drill.findings(), **requests})


def _requests(store: "EmulatedGcs | None") -> Counter[str]:
  if store is None:
    return Counter()
  return Counter({"requests": store.requests.total(), "requests answered with 503": store.refused})


def _on_a_small_disk() -> None:
  """Starts this program again where a file system of its own may be mounted."""
  os.environ["REALM_DRILL"] = tempfile.mkdtemp(prefix="realm_drill_")
  mount = 'mount -t tmpfs -o size=300m drill "$REALM_DRILL" && exec "$@"'
  command = ["unshare", "-rm", "sh", "-c", mount, "sh", sys.executable, *sys.argv]
  code = subprocess.run(command).returncode
  os.rmdir(os.environ["REALM_DRILL"])
  sys.exit(code)


def _keep_programs() -> None:
  """Compiles every program once for all runs, processes and invocations."""
  settings = {
    "jax_compilation_cache_dir": backend.programs_directory(object_store.cache_directory()),
    "jax_persistent_cache_min_compile_time_secs": 0,
  }
  for name, value in settings.items():
    os.environ.setdefault(name.upper(), str(value))
    jax.config.update(name, type(value)(os.environ[name.upper()]))


def drill(arguments: argparse.Namespace, store: "EmulatedGcs | None") -> Counter[str]:
  """Trains and kills until so many were killed; returns what happened in all runs together."""
  if store is None and "REALM_DRILL" not in os.environ:
    _on_a_small_disk()
  directory = os.environ.get("REALM_DRILL") or tempfile.mkdtemp(prefix="realm_drill_")
  _keep_programs()
  os.environ["REALM_CACHE"] = f"{directory}/cache"
  runs = []
  if arguments.output and os.path.exists(arguments.output):
    runs = [Counter(json.loads(line)) for line in open(arguments.output, encoding="utf-8")]
  with sigterm_interrupts(), contextlib.ExitStack() as stack:
    if store is not None:
      stack.callback(shutil.rmtree, directory)
    world = World(directory, store)
    world.prepare(num_steps=arguments.num_steps)
    # The process to copy is ready when its first copy is.
    first = _JOBS.Process(target=os.getpid)
    first.start()
    first.join()
    while (kills := arguments.kills - sum(run[name] for run in runs for name in _KILLS)) > 0:
      runs.append(_next_run(world, arguments, kills=kills, number=len(runs)))
      if arguments.output:
        with open(arguments.output, "a", encoding="utf-8") as file:
          file.write(json.dumps(runs[-1]) + "\n")
  total: Counter[str] = Counter()
  for run in runs:
    total.update(run)
  return total


def _next_run(
  world: World, arguments: argparse.Namespace, *, kills: int, number: int
) -> Counter[str]:
  """Makes a run and removes it; what is left of one that is not whole stays beside the output."""
  seed = arguments.seed + number
  events = [*draw_events(arguments, kills=kills, seed=seed)]
  drill = Drill(world, num_steps=arguments.num_steps, seed=seed)
  whole = False
  try:
    found = drill_once(drill, events)
    whole = not any(count for name, count in found.items() if name.startswith("wrong: "))
  finally:
    if not whole and arguments.output:
      shutil.copytree(drill.directory, f"{arguments.output}.{drill.name}", dirs_exist_ok=True)
    shutil.rmtree(drill.directory)
  killed = sum(found[name] for name in _KILLS)
  print(f"{drill.name}: {killed} kills in {found['seconds']} s", flush=True)
  return found
