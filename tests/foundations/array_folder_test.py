"""What is read is what was written, or a line says which file is not."""

import json
import os
import threading
import time

import ml_dtypes
import numpy as np
import pytest

from realm_jax.foundations import array_folder, atomic_files, object_store
from realm_jax.foundations.array_folder import FOLDER_FILE, Folder, FolderKind

KIND = FolderKind(name="a world", kind="world", format=3, remake="make it again")
OTHER = FolderKind(name="a moon", kind="moon", format=3, remake="make it again")
ARRAYS = {
  "embeddings": np.arange(20, dtype=ml_dtypes.bfloat16).reshape(5, 4),
  "shard_0/ids.npy": np.arange(7),
  "nothing": np.zeros((0, 4), np.float32),
}


def write(directory, arrays=ARRAYS):
  array_folder.write(os.fspath(directory), arrays, kind=KIND, description={"name": "é"})
  return directory


def assert_equal(found, expected):
  assert found.keys() == expected.keys()
  for name, array in expected.items():
    assert found[name].dtype == array.dtype
    np.testing.assert_array_equal(found[name], array, strict=True)


def test_arrays_are_mapped_or_read_as_they_were(tmp_path):
  folder = Folder(write(tmp_path), kind=KIND, of=dict)
  assert folder.description == {"name": "é"}
  assert folder.records == array_folder.describe(ARRAYS)
  mapped = folder.mapped(ARRAYS)
  assert_equal(mapped, ARRAYS)
  assert not mapped["embeddings"].flags.writeable
  assert_equal(array_folder.read_arrays(os.fspath(tmp_path), folder.records), ARRAYS)


def test_an_array_has_its_values_whatever_the_order_of_its_bytes_and_items(tmp_path):
  values = np.arange(12, dtype=np.float32).reshape(3, 4)
  arrays = {"bytes": values.astype(">f4"), "columns": np.asfortranarray(values)}
  folder = Folder(write(tmp_path, arrays), kind=KIND, of=dict)
  array_folder.write_file(os.fspath(tmp_path / "file"), arrays, kind=KIND)
  read = array_folder.read_arrays(os.fspath(tmp_path), folder.records)
  opened, _ = array_folder.open_file(tmp_path / "file", kind=KIND, shapes={})
  for found in (folder.mapped(arrays), read, opened):
    assert_equal(found, dict.fromkeys(arrays, values))


def test_a_bounded_number_of_arrays_is_read_at_a_time(tmp_path, monkeypatch):
  at_once, most, lock = 0, 0, threading.Lock()

  def read(directory, name, record, of=array_folder._read_array):
    nonlocal at_once, most
    with lock:
      at_once += 1
      most = max(most, at_once)
    time.sleep(0.02)
    with lock:
      at_once -= 1
    return of(directory, name, record)

  monkeypatch.setattr(array_folder, "_read_array", read)
  arrays = {f"a{number}": np.arange(number) for number in range(60)}
  array_folder.write_arrays(os.fspath(tmp_path), arrays)
  assert_equal(array_folder.read_arrays(os.fspath(tmp_path), array_folder.describe(arrays)), arrays)
  assert 1 < most <= 16


@pytest.mark.parametrize("size", [1, 7, 80, 1 << 20])
def test_arrays_are_read_in_ranges_of_any_size(tmp_path, monkeypatch, size):
  monkeypatch.setattr(object_store, "_RANGE", size)
  arrays = {**ARRAYS, "scalar": np.array(7)}
  array_folder.write_arrays(os.fspath(tmp_path), arrays)
  assert_equal(array_folder.read_arrays(os.fspath(tmp_path), array_folder.describe(arrays)), arrays)


def test_what_is_appended_is_what_is_written_at_once(tmp_path):
  write(tmp_path / "once", {"embeddings": ARRAYS["embeddings"]})
  (tmp_path / "appended").mkdir()
  writer = array_folder.Writer(tmp_path / "appended", kind=KIND)
  column = writer.column("embeddings", "bfloat16", (4,))
  for part in (slice(0, 2), slice(2, 2), slice(2, 5)):
    column.append(array_folder.as_bytes(ARRAYS["embeddings"][part]))
  writer.finish({"name": "é"})
  once, appended = (
    {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()}
    for name in ("once", "appended")
  )
  assert once == appended


@pytest.mark.parametrize("name", [FOLDER_FILE, "embeddings.bin"])
def test_no_changed_byte_is_read(tmp_path, name):
  file = write(tmp_path, {"embeddings": ARRAYS["embeddings"]}) / name
  content = file.read_bytes()
  for place in range(len(content)):
    file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(ValueError) as error:
      folder = Folder(tmp_path, kind=KIND, of=dict)
      array_folder.read_arrays(os.fspath(tmp_path), folder.records)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("damage", ["shorter", "longer", "missing", "pipe"])
def test_a_file_of_another_size_is_refused_by_name(tmp_path, damage):
  file = write(tmp_path) / "embeddings.bin"
  content = file.read_bytes()
  file.unlink()
  if damage == "pipe":
    os.mkfifo(file)
  elif damage != "missing":
    file.write_bytes(content[:-1] if damage == "shorter" else content + b"x")
  folder = Folder(tmp_path, kind=KIND, of=dict)
  with pytest.raises(ValueError, match=f"{file} is damaged: it has .* instead of 40; make it"):
    folder.mapped(["embeddings"])


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"kind": "moon"}, "it is 'moon' of format 3, not 'world' of format 3; make it again"),
    ({"format": 2}, "it is 'world' of format 2, not 'world' of format 3; make it again"),
    ({"arrays": {"../x": {"shape": [1], "dtype": "int8", "sha256": ""}}}, "'../x' of int8"),
    (
      {"arrays": {"x": {"shape": [-1], "dtype": "int8", "sha256": ""}}},
      r"'x' of int8 \[-1\] cannot",
    ),
    *(
      ({"arrays": {"x": {"shape": shape, "dtype": "int8", "sha256": ""}}}, "'x' of int8 .* cannot")
      for shape in ([2.0], [True], [2**63, 0], [0, 2**62], [1] * 33, "12")
    ),
    ({"arrays": {"x": {"shape": [1], "dtype": "object", "sha256": ""}}}, "'x' of object"),
    ({"arrays": {"x": {"dtype": "int8"}}}, "damaged: it lacks 'shape'; make it again"),
    ({"arrays": [1]}, r"damaged: something .* of another type .*'items'\); make it again"),
    ({"description": 7}, "7 is no str"),
  ],
)
def test_what_does_not_fit_the_reader_is_refused(tmp_path, change, message):
  write(tmp_path)
  content = {**json.loads((tmp_path / FOLDER_FILE).read_text()), **change}
  (tmp_path / FOLDER_FILE).write_text(json.dumps(content))
  with pytest.raises(ValueError, match=message):
    Folder(tmp_path, kind=KIND, of=dict if "description" not in change else str)


def test_a_folder_of_another_kind_is_not_replaced(tmp_path):
  write(tmp_path / "world", {"embeddings": ARRAYS["embeddings"]})
  with (
    pytest.raises(ValueError, match=f"has {FOLDER_FILE}, but is not a moon; nothing there"),
    atomic_files.new_directory(tmp_path / "world", kind=OTHER),
  ):
    pass
  with atomic_files.new_directory(tmp_path / "world", kind=KIND) as directory:
    write(directory, {})
  assert os.listdir(tmp_path / "world") == [FOLDER_FILE]


def test_what_only_has_the_name_of_its_file_is_no_folder(tmp_path):
  (tmp_path / FOLDER_FILE).mkdir()
  with pytest.raises(ValueError, match=f"has {FOLDER_FILE}, but is not a world; nothing there"):
    KIND.check(tmp_path)


def test_of_a_bucket_what_is_mapped_is_copied(emulated_gcs, tmp_path, monkeypatch):
  monkeypatch.setenv("REALM_CACHE", str(tmp_path / "cache"))
  arrays = {name: ARRAYS[name] for name in ("embeddings", "nothing")}
  object_store.upload(write(tmp_path / "world", arrays), "gs://bucket/world")
  folder = Folder("gs://bucket/world", kind=KIND, of=dict)
  assert os.listdir(folder.local_directory) == [FOLDER_FILE]
  assert_equal(folder.mapped(["embeddings"]), {"embeddings": ARRAYS["embeddings"]})
  assert {*os.listdir(folder.local_directory)} == {FOLDER_FILE, "embeddings.bin"}
  with pytest.raises(ValueError, match="gs://bucket/world has .*, but is not a moon"):
    OTHER.check("gs://bucket/world")
  object_store.upload(write(tmp_path / "other", {}), "gs://bucket/world")
  with pytest.raises(ValueError, match="was replaced after it had been opened; open it again"):
    folder.mapped(["nothing"])


def test_a_bucket_is_written_and_read_without_the_cache(emulated_gcs):
  write("gs://bucket/direct")
  content = object_store.Path(f"gs://bucket/direct/{FOLDER_FILE}").read_bytes()
  description, records = array_folder.decode(content, KIND, dict)
  assert description == {"name": "é"}
  assert_equal(array_folder.read_arrays("gs://bucket/direct", records), ARRAYS)


def test_many_arrays_are_one_file(tmp_path):
  path = os.fspath(tmp_path / "world")
  array_folder.write_file(path, ARRAYS, kind=KIND, description={"name": "é"})
  shapes = {"embeddings": "V2 N 4", "shard_0/ids.npy": "i8 M", "nothing": "f4 0 E"}
  found, description = array_folder.open_file(path, kind=KIND, of=dict, shapes=shapes)
  assert_equal(found, ARRAYS)
  assert description == {"name": "é"}
  assert not found["embeddings"].flags.writeable
  for kind, changed, message in (
    (OTHER, shapes, "it is 'world' of format 3, not 'moon' of format 3; make it again"),
    (KIND, {"embeddings": "V2 7 4"}, r"embeddings is bfloat16 \[5, 4\], not V2 7 4; make it again"),
    (KIND, {"absent": "i4 N"}, "it lacks 'absent'; make it again"),
  ):
    with pytest.raises(ValueError, match=f"{path} is damaged: {message}"):
      array_folder.open_file(path, kind=kind, of=dict, shapes=changed)


@pytest.mark.parametrize("way", ["at once", "array by array", "one file"])
@pytest.mark.parametrize(
  "array",
  [
    np.arange(3, dtype=">i4"),
    np.asfortranarray(np.arange(6.0, dtype=">f8").reshape(2, 3)),
    np.array(7),
    np.zeros((3, 0), np.int8),
    np.zeros((2, 0, 4), np.float16),
  ],
)
def test_any_order_of_bytes_and_any_shape_is_kept(tmp_path, array, way):
  arrays = {"a": array}
  if way == "one file":
    array_folder.write_file(f"{tmp_path}/file", arrays, kind=KIND)
    found, _ = array_folder.open_file(f"{tmp_path}/file", kind=KIND, shapes={})
  else:
    if way == "at once":
      write(tmp_path, arrays)
    else:
      writer = array_folder.Writer(tmp_path, kind=KIND)
      writer.write("a", array)
      writer.finish({})
    found = Folder(tmp_path, kind=KIND, of=dict).mapped("a")
  assert_equal(found, {"a": array.astype(array.dtype.newbyteorder("="))})


@pytest.mark.parametrize("name, dtype", [("a", "U3"), ("a", "V4"), ("a", "O"), ("b/../a", "i4")])
def test_what_could_not_be_read_is_not_written(tmp_path, name, dtype):
  writer = array_folder.Writer(tmp_path, kind=KIND)
  array = np.zeros(2, dtype)
  ways = [
    lambda: write(tmp_path, {name: array}),
    lambda: array_folder.write_file(f"{tmp_path}/file", {name: array}, kind=KIND),
    lambda: writer.write(name, array),
    lambda: writer.column(name, dtype),
  ]
  for way in ways:
    with pytest.raises(ValueError, match="cannot be stored"):
      way()
  with pytest.raises(ValueError, match="cannot be counted"):
    writer.column("a", "i4", (3, 0))
  assert not [*tmp_path.iterdir()]


def test_a_writer_that_dies_in_the_place_of_a_folder_leaves_none(tmp_path, monkeypatch):
  write(tmp_path)
  monkeypatch.setattr(array_folder, "write_arrays", lambda *_: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    write(tmp_path)
  with pytest.raises(FileNotFoundError, match="make it again"):
    Folder(tmp_path, kind=KIND, of=dict)
