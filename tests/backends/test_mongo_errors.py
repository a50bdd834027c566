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


def test_so_is_one_that_was_raised_again_amid_something_else():
    lost = lost_amid(pymongo_errors.AutoReconnect("connection closed"))
    lost.__context__ = TimeoutError()
    translated = translate(lost, "mongodb://host/tenure")
    assert isinstance(translated, BackendUnavailable)
    assert str(translated) == "mongodb://host/tenure: connection lost"


SEARCHED = (
    "db1:27017: [Errno 111] Connect call failed ('10.0.0.1', 27017) (configured timeouts: socketTimeoutMS: 5000.0ms,"
    " connectTimeoutMS: 5000.0ms),db2:27017: timed out, Timeout: 4.9s, Topology Description: <TopologyDescription"
    ' id: 1, servers: [<ServerDescription error=AutoReconnect("db1:27017: [Errno 111] Connect call failed")>]>'
)


def test_a_server_that_is_not_found_is_told_of_in_a_line_that_says_where_to_look():
    translated = translate(pymongo_errors.ServerSelectionTimeoutError(SEARCHED), "mongodb://db1,db2/app")
    assert isinstance(translated, BackendUnavailable)
    assert str(translated) == (
        "mongodb://db1,db2/app: db1:27017: [Errno 111] Connect call failed ('10.0.0.1', 27017),db2:27017: timed out;"
        " is it running there? look at host and port"
    )


def test_other_mistakes_are_given_back_as_they_are():
    amid_a_failure = AttributeError("no such thing", name="thing")
    amid_a_failure.__context__ = pymongo_errors.AutoReconnect("connection closed")
    for error in (AttributeError("no such thing"), amid_a_failure):
        assert translate(error, "mongodb://host/tenure") is error
