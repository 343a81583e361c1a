"""What one file may cost: the bounds on what people bring, in one place.

Bounds are sizes. Seconds, by which the same files would give other documents on a busy machine, are
of a process's own computing, and far beyond what any file but a hostile one takes.
"""

RECORD = 2**24  # characters of a text, of a line and of a cell
MARKDOWN = 2**22  # characters of a file, whose marks take 300 bytes each
WHOLE_JSON = 2**28  # characters of a file that is not a record a line
FIELDS = 10_000  # of a record, and columns of a table
ROW_LINES = 100_000  # of a row of a table, whose cells may have line ends
UNPACKED = 2**24  # bytes of any compressed file
UNPACKED_TIMES = 100  # bytes for each that it has, if these are more
FRONT_MATTER = 2**15  # characters; what is longer is text
FRONT_MATTER_VALUES = 10_000  # which references may multiply
REPEATED_TITLE = 1_000  # characters that are searched with each passage of a document

HEADING = 200  # characters that are searched with each passage of a section
DOCUMENT = 2**29  # bytes of a PDF and the like
DOCUMENT_MEMORY = 2**32  # bytes of the process that reads it
DOCUMENT_SECONDS = 120  # that it may compute, many times what one of that size takes


def too_long(limit: int = RECORD) -> str:
  """Returns what is said of a longer text."""
  return f"longer than {limit:,} characters; divide it"


def too_many_fields(number: int) -> str:
  """Returns what is wrong with a number of fields, "" for nothing."""
  return f"it has {number:,} fields; give at most {FIELDS:,}" if number > FIELDS else ""


def unpacked_error(size: int, unpacked: int) -> str:
  """Returns what is wrong with a compressed file that has so many bytes, "" for nothing."""
  if unpacked <= max(UNPACKED, UNPACKED_TIMES * size):
    return ""
  return f"{size:,} bytes unpack to more than {max(UNPACKED, UNPACKED_TIMES * size):,}; unpack it"
