import numpy as np
import pytest
import tensorflow as tf

from realm_jax.convert import block_records

RECORDS = [b"one", "zwölf".encode(), b"", b"\x00\xff"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_tf_records(suffix, tmp_path):
  path = tmp_path / f"blocks.tfr{suffix}"
  options = tf.io.TFRecordOptions("GZIP" if suffix else "")
  with tf.io.TFRecordWriter(str(path), options) as writer:
    for record in RECORDS:
      writer.write(record)
  assert list(block_records.read(path)) == RECORDS


def test_pickled_array_of_bytes(tmp_path):
  path = tmp_path / "block_records.npy"
  np.save(path, np.array(RECORDS, dtype=object))
  assert list(block_records.read(path)) == RECORDS


def test_a_pickled_array_calls_nothing(tmp_path):
  witness = tmp_path / "witness"

  class Opens:
    def __reduce__(self):
      return open, (str(witness), "w")

  path = tmp_path / "block_records.npy"
  np.save(path, np.array([Opens()], dtype=object))
  with pytest.raises(ValueError, match="not an array of records that is safe to read.*open"):
    block_records.read(path)
  assert not witness.exists()


@pytest.mark.parametrize("content", [np.array(["text"], dtype=object), np.arange(3)])
def test_other_arrays_are_refused(content, tmp_path):
  path = tmp_path / "block_records.npy"
  np.save(path, content)
  with pytest.raises(ValueError, match="not an array of records that is safe to read"):
    block_records.read(path)


def test_a_missing_file_is_named(tmp_path):
  with pytest.raises(FileNotFoundError, match=r"no records at .*blocks.tfr"):
    block_records.read(tmp_path / "blocks.tfr")
