"""Refusals of requests that are well-formed; `ValueError` is for those that are not."""


class NotFoundError(LookupError):
  """The named passage, document, model or file does not exist."""


class ForbiddenError(Exception):
  """Who asks may not change anything."""


class OverloadedError(Exception):
  """Too many queries are waiting already."""
