"""Errors of the driver that are not of its own kinds."""

import pytest
from tenure.errors import BackendUnavailable

pymongo_errors = pytest.importorskip("pymongo.errors")
translate = pytest.importorskip("tenure_mongo.errors").translate


def lost_amid(lost):
    """What pymongo raises of a change stream whose session is gone when its connection is lost."""
    session = None
    try:
        try:
            raise lost
        except type(lost):
            session.mark_dirty()
    except AttributeError as error:
        return error


def test_a_connection_that_a_change_stream_lost_after_its_session_is_unavailable():
    translated = translate(lost_amid(pymongo_errors.AutoReconnect("connection closed")), "mongodb://host/tenure")
    assert isinstance(translated, BackendUnavailable)
    assert "connection closed" in str(translated)


def test_other_mistakes_are_given_back_as_they_are():
    for error in (AttributeError("no such thing"), lost_amid(ValueError("not the store"))):
        assert translate(error, "mongodb://host/tenure") is error
