"""Bytes of pages and of mail as text, in the encodings that their makers meant."""

from collections.abc import Iterable

# What browsers take for these names, as the Encoding Standard has it: supersets, which many pages
# and programs use under the name of the smaller one.
_MEANT = {
  **dict.fromkeys(("ascii", "iso-8859-1", "iso_8859-1", "latin1", "us-ascii"), "cp1252"),
  **dict.fromkeys(("iso-8859-9", "latin5"), "cp1254"),
  **dict.fromkeys(("iso-8859-11", "tis-620"), "cp874"),
  **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis", "ms_kanji"), "cp932"),
  **dict.fromkeys(("gb2312", "gb_2312-80", "gbk", "x-gbk"), "gb18030"),
  **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "ksc5601"), "cp949"),
  "big5": "big5hkscs",
}


def decoded(content: bytes, names: Iterable[str] = ()) -> str:
  """Returns a text in the first encoding that fits: one that is named, UTF-8, or Windows-1252.

  Args:
    names: Encodings as the text names them.
  """
  meant = (_MEANT.get(name.strip().lower(), name.strip()) for name in names)
  for encoding in (*meant, "utf-8"):
    try:
      return content.decode(encoding).removeprefix("\ufeff")
    except (LookupError, ValueError):  # no such encoding, or not of a text
      continue
  return content.decode("cp1252", "replace")
