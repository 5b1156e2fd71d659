"""Addresses, what a reply means, and the backoff: no server needed."""

from __future__ import annotations

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaita.errors import InputError, RefusedError, UnreachableError
from plaita.store.call import Call, Refused, Unavailable, Unknown, Value, expect, lane_for, script
from plaita.store.endpoint import parse_endpoint
from plaita.store.wire import BACKOFF_CAP_S, backoff_s, greeting, read_greeting, understand

PLAIN = Call("plain", None, (), ("PING",), "writer", True, lambda reply: reply)
SCRIPTED = Call("scripted", script("ack"), (), (), "writer", True, lambda reply: reply[0])


@pytest.mark.parametrize("failures", [-1, 0, 1, 2, 46, 47, 1023, 1024, 10**6])
@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_backoff_is_defined_for_every_count(failures: int, chance: float):
    """KNOWN-TROUBLE 46."""
    seconds = backoff_s(failures, chance)
    assert 0 <= seconds <= BACKOFF_CAP_S
    assert (seconds > 0) == (failures > 0)


@given(st.integers(min_value=1, max_value=10**9), st.floats(min_value=0, max_value=1))
def test_backoff_never_shrinks_below_half_of_the_one_before(failures: int, chance: float):
    assert backoff_s(failures + 1, chance) >= backoff_s(failures, chance)


@pytest.mark.parametrize(
    ("url", "shown", "db"),
    [
        ("redis://h", "redis://h:6379", 0),
        ("redis://u:p%40ss@h:7/3", "redis://h:7/3", 3),
        ("rediss://:geheim@h", "rediss://h:6379", 0),
        ("unix:///a/b.sock?password=geheim&db=2", "unix:///a/b.sock", 2),
        ("unix:///a%20b.sock", "unix:///a b.sock", 0),
    ],
)
def test_endpoints(url: str, shown: str, db: int):
    endpoint = parse_endpoint(url)
    assert (endpoint.shown, endpoint.db) == (shown, db)
    for secret in ("p@ss", "p%40ss", "geheim"):
        assert secret not in endpoint.shown
        assert secret not in repr(endpoint)


def test_a_password_is_decoded_and_sent_in_the_greeting_only():
    endpoint = parse_endpoint("redis://u:p%40ss@h:7/3")
    assert (endpoint.username, endpoint.password) == ("u", "p@ss")
    words = [list(call.args) for call in greeting(endpoint, "n")]
    assert words == [["HELLO", 2, "AUTH", "u", "p@ss", "SETNAME", "n"], ["SELECT", 3], ["PING"]]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:6379",
        "http://h",
        "redis://h:port",
        "redis://h/x",
        "unix://",
        "redis://:geheim@h:99999x",
    ],
)
def test_bad_urls_are_refused_without_showing_a_password(url: str):
    with pytest.raises(InputError) as caught:
        parse_endpoint(url)
    assert "redis url" in str(caught.value)
    assert "geheim" not in str(caught.value)


def error(text: str) -> hiredis.ReplyError:
    return hiredis.ReplyError(text)


@pytest.mark.parametrize(
    ("text", "drop", "auth"),
    [
        ("LOADING Redis is loading the dataset in memory", True, False),
        ("READONLY You can't write against a read only replica.", True, False),
        ("MASTERDOWN Link with MASTER is down", True, False),
        ("CLUSTERDOWN Hash slot not served", True, False),
        ("NOAUTH Authentication required.", True, True),
        ("WRONGPASS invalid username-password pair", True, True),
        ("NOPERM this user has no permissions", False, True),
        ("BUSY Redis is busy running a script", False, False),
        ("OOM command not allowed when used memory > 'maxmemory'.", False, False),
        ("MISCONF Redis is configured to save RDB snapshots", False, False),
        ("NOREPLICAS Not enough good replicas to write.", False, False),
        ("UNBLOCKED force unblock from blocking operation", True, False),
        ("ERR max number of clients reached", True, False),
        ("ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write", True, False),
        ("ERR Error running script (call to f_1): @user_script: 12: -OOM command not allowed", False, False),
    ],
)
def test_the_server_cannot_serve_now(text: str, drop: bool, auth: bool):
    said = f"plain: NOPERM {text.partition(' ')[2]}" if auth and not drop else text  # which of our calls it was
    assert understand(PLAIN, error(text)) == (Unavailable(said, auth), drop)


@pytest.mark.parametrize(
    "text",
    [
        "NOPERM ACL failure in script: User u may not run 'set' script: abc, on @user_script:1.",
        "ERR ACL failure in script: User u may not run 'set' script: on @user_script:1.",
        "ERR Error running script (call to f_1): @user_script:3: -NOPERM this user has no permissions",
    ],
)
def test_a_right_that_lacks_inside_a_script_leaves_open_what_was_done_before(text: str):
    answer, drop = understand(SCRIPTED, error(text))
    assert isinstance(answer, Unknown)
    assert answer.error.startswith("scripted: NOPERM ")
    assert not drop


def test_refusals_by_the_server():
    assert understand(PLAIN, error("WRONGTYPE Operation"))[0] == Refused("wrong_type", "WRONGTYPE Operation")
    assert understand(PLAIN, error("ERR syntax error"))[0] == Refused("server_error", "ERR syntax error")
    grouped = Call("read", None, (), (), "reader", False, lambda reply: reply, refusals={"NOGROUP": "no_group"})
    assert understand(grouped, error("NOGROUP No such key"))[0] == Refused("no_group", "NOGROUP No such key")


def test_script_answers():
    assert understand(SCRIPTED, [b"ok", 7]) == (Value(7), False)
    assert understand(SCRIPTED, [b"refused", b"fence", b"1:x"])[0] == Refused("fence", "1:x")
    assert understand(SCRIPTED, [b"refused", b"no_row"])[0] == Refused("no_row")


@pytest.mark.parametrize("reply", [None, 5, [b"ok"], [], b"ok"])
def test_a_reply_of_another_shape_is_no_refusal(reply: object):
    answer, _ = understand(SCRIPTED, reply)
    assert isinstance(answer, Unknown)


def test_a_replica_is_not_greeted():
    from plaita.store.wire import GreetingError

    endpoint = parse_endpoint("redis://h")
    with pytest.raises(GreetingError, match="READONLY"):
        read_greeting(endpoint, [Value([b"server", b"redis", b"id", 3, b"role", b"replica"]), Value(b"PONG")])


def test_expect():
    assert expect(Value(3)) == 3
    with pytest.raises(RefusedError, match="fence: 1:x") as refused:
        expect(Refused("fence", "1:x"))
    assert refused.value.reason == "fence"
    for lost in (Unknown("gone"), Unavailable("away")):
        with pytest.raises(UnreachableError):
            expect(lost)


def test_large_bodies_have_a_lane_of_their_own():
    assert lane_for(b"x" * (256 * 1024)) == "writer"
    assert lane_for(b"x" * (256 * 1024), None, b"y") == "bulk"
