"""Configurations of configurations: what flags and gin set, where, and what children read."""

import json

import pytest

from realm_jax import main

JOB = '''\
"""Sings."""

import dataclasses
import json
import pathlib


@dataclasses.dataclass(frozen=True)
class Singer:
  """A voice.

  Attributes:
    volume: how loud.
    pitch: how high.
    tags: set through gin.
  """

  volume: int = 1
  pitch: float = 0.5
  tags: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Choir(Singer):
  """Several voices as one.

  Attributes:
    size: of how many.
  """

  size: int = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Duet:
  """Two voices.

  Attributes:
    high: the one.
    low: the other.
    guest: a third, perhaps.
    verses: how many.
  """

  high: Singer
  low: Singer = Singer(volume=2)
  guest: Singer | None = None
  verses: int = 4


DUET = Duet(high=Singer(pitch=2.0), verses=3)


def sing(*, workdir: str, duet: Duet = DUET, solo: Singer = Singer()):
  """Writes what is sung.

  Args:
    workdir: folder.
    duet: who sings.
    solo: who sings alone.
  """
  sung = {"duet": dataclasses.asdict(duet), "solo": dataclasses.asdict(solo)}
  pathlib.Path(workdir, "sung.json").write_text(json.dumps(sung))
'''
DEFAULT = {
  "duet": {
    "high": {"volume": 1, "pitch": 2.0, "tags": {}},
    "low": {"volume": 2, "pitch": 0.5, "tags": {}},
    "guest": None,
    "verses": 3,
  },
  "solo": {"volume": 1, "pitch": 0.5, "tags": {}},
}


@pytest.fixture(scope="module", autouse=True)
def singing_job(tmp_path_factory):
  folder = tmp_path_factory.mktemp("jobs")
  (folder / "singing.py").write_text(JOB)
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(folder))
    yield


@pytest.fixture
def sing(tmp_path):
  """`sing(*arguments)` returns what was sung; gin files are given as text after `gin:`."""

  def run(*arguments):
    files = []
    for number, argument in enumerate(arguments):
      if argument.startswith("gin:"):
        file = tmp_path / f"{number}.gin"
        file.write_text(
          f"from __gin__ import dynamic_registration\nimport singing\n{argument[len('gin:') :]}\n"
        )
        argument = f"--gin_file={file}"
      files.append(argument)
    assert main.main(["sing", f"--workdir={tmp_path}", *files], jobs={"sing": "singing"}) == 0
    return json.loads((tmp_path / "sung.json").read_text())

  return run


def changed(**values):
  """Returns the default with some values changed, by names joined with `__`."""
  expected = json.loads(json.dumps(DEFAULT))
  for name, value in values.items():
    *path, last = name.split("__")
    place = expected
    for part in path:
      place = place[part]
    place[last] = value
  return expected


@pytest.mark.parametrize(
  ("arguments", "expected"),
  [
    ([], DEFAULT),
    (["--duet.high.volume=7"], changed(duet__high__volume=7)),
    (["--low.volume=7", "--verses=9"], changed(duet__low__volume=7, duet__verses=9)),
    (["--solo.pitch=1"], changed(solo__pitch=1.0)),
    (["--guest.volume=5"], changed(duet__guest={"volume": 5, "pitch": 0.5, "tags": {}})),
    # What gin binds without a scope reaches every voice, with one that voice, and a flag beats it.
    (
      ["gin:singing.Singer.pitch = 3.0", "--solo.pitch=4"],
      changed(duet__high__pitch=3.0, duet__low__pitch=3.0, solo__pitch=4.0),
    ),
    (["gin:duet/singing.Singer.volume = 6"], changed(duet__high__volume=6, duet__low__volume=6)),
    (["--gin.duet/low/singing.Singer.volume=6"], changed(duet__low__volume=6)),
    # Another class in place of the default, whose own fields are set through gin.
    (
      ["gin:singing.Duet.low = @singing.Choir()\nsinging.Choir.size = 9", "--low.pitch=7"],
      changed(duet__low={"volume": 1, "pitch": 7.0, "tags": {}, "size": 9}),
    ),
    # Two fields that gin binds to one reference are still two.
    (
      [
        "gin:singing.Duet.high = @a/singing.Singer()\nsinging.Duet.low = @a/singing.Singer()\n"
        "a/singing.Singer.pitch = 8.0",
        "--high.volume=5",
      ],
      changed(duet__high__pitch=8.0, duet__low__pitch=8.0, duet__high__volume=5),
    ),
    (
      ["gin:singing.Singer.tags = {'a': 1}", "gin:solo/singing.Singer.tags = {}"],
      changed(duet__high__tags={"a": 1}, duet__low__tags={"a": 1}),
    ),
  ],
)
def test_flags_and_bindings_reach_what_they_name(sing, tmp_path, arguments, expected):
  assert sing(*arguments) == expected
  first = (tmp_path / "sing_config.gin").read_text()
  for config in ("sing_config.gin", "sing_operative_config.gin"):
    (tmp_path / "sung.json").unlink()
    # A child process that reads what was written runs the same.
    assert sing(f"--gin_file={tmp_path / config}") == expected
  (tmp_path / "first.gin").write_text(first)
  sing(f"--gin_file={tmp_path / 'first.gin'}")
  assert (tmp_path / "sing_config.gin").read_text() == first


def test_paths_have_commas_and_a_home_directory(sing, tmp_path, monkeypatch):
  monkeypatch.setenv("HOME", str(tmp_path))
  folder = tmp_path / "all,seed=1"
  folder.mkdir()
  (folder / "a,b.gin").write_text("import singing\nsinging.Duet.verses = 7\n")
  words = ["sing", "--gin_file=~/all,seed=1/a,b.gin", "--workdir=~/all,seed=1"]
  main.main(words, jobs={"sing": "singing"})
  sung = json.loads((folder / "sung.json").read_text())
  assert sung == changed(duet__verses=7)
  (tmp_path / "home.gin").write_text("import singing\nW = '~'\nsinging.sing.workdir = %W\n")
  main.main(["sing", f"--gin_file={tmp_path}/home.gin"], jobs={"sing": "singing"})
  assert json.loads((tmp_path / "sung.json").read_text()) == DEFAULT


def test_flags_beat_the_configuration_that_a_parent_wrote(sing, tmp_path):
  sing("--high.volume=7", "--verses=5")
  again = sing(f"--gin_file={tmp_path / 'sing_config.gin'}", "--high.volume=8")
  assert again == changed(duet__high__volume=8, duet__verses=5)


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--tags=x"], "--tags is one of several"),
    (["--solo.tags=x"], "--solo.tags is set through gin"),
    (
      ["gin:V = @singing.Singer()\nsinging.sing.solo = %V", "--solo.volume=2"],
      "volume of solo cannot be set, gin binds it to %V",
    ),
    (["--gin.solos/singing.Singer.pitch=2.0"], "in the scope solos (did you mean solo?)"),
    (["gin:duet/hihg/singing.Singer.pitch = 2.0"], "in the scope hihg (did you mean high?)"),
    (["gin:typo/singing.sing.workdir = 'a'"], "nothing is called in the scope typo"),
    (["gin:singing.Duet.high = @singing.Duet()"], "duet.high=@singing.Duet(); give an object of"),
    (["--workdir="], "workdir is empty; give a value, or leave it out"),
    (["gin:singing.sing.workdir = ''", "--workdir="], "workdir is empty"),
    (["--gin_file="], "gin_file is empty"),
  ],
)
def test_what_cannot_be_set_is_refused_by_name(sing, capsys, arguments, message):
  with pytest.raises(AssertionError):
    sing(*arguments)
  assert message in capsys.readouterr().err
