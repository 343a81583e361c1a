"""Why a request is refused, apart from `ValueError`, which says that it makes no sense."""


class NotFoundError(LookupError):
  """The named passage, document, model or file does not exist."""


class ForbiddenError(Exception):
  """Who asks may not change anything."""


class OverloadedError(Exception):
  """Too many queries are waiting already."""
