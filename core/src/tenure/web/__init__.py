"""The page to look at: ``page`` is an ASGI application, which ``tenure web`` serves (extra ``web``)."""

from tenure.web.app import page

__all__ = ["page"]
