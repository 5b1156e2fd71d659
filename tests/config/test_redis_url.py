"""The grammar of Redis URLs: what each form means, what is refused, and that no fault shows a password."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaita.errors import ConfigError
from plaita.runtime_config import load_client_config, mask_url
from plaita.runtime_config.redis_url import Place, RedisUrl, read_redis_url

SECRET = "S3cr3t-marker"


@pytest.mark.parametrize(
    ("url", "places", "shown"),
    [
        ("redis://h", [("h", 6379)], "redis://h:6379"),
        ("REDIS://h:/", [("h", 6379)], "redis://h:6379"),
        ("redis://[::1]:7/2", [("::1", 7)], "redis://[::1]:7/2"),
        ("redis://[fe80::1%25eth0]", [("fe80::1%eth0", 6379)], "redis://[fe80::1%eth0]:6379"),
        ("rediss://h:1?db=3", [("h", 1)], "rediss://h:1/3"),
        ("redis://h/0?db=0", [("h", 6379)], "redis://h:6379"),
        ("redis+sentinel://s/m", [("s", 26379)], "redis+sentinel://s:26379/m"),
        ("redis+sentinel://a:1,[::1],c/m/4", [("a", 1), ("::1", 26379), ("c", 26379)], None),
        ("rediss+sentinel://a,b/my%20master", [("a", 26379), ("b", 26379)], None),
        ("redis+sentinel://a?service_name=m", [("a", 26379)], "redis+sentinel://a:26379/m"),
        ("redis+sentinel://a/2?service_name=m", [("a", 26379)], "redis+sentinel://a:26379/m/2"),
        ("redis+sentinel://a/m/2?service_name=m", [("a", 26379)], "redis+sentinel://a:26379/m/2"),
        ("redis+sentinel://a/7", [("a", 26379)], "redis+sentinel://a:26379/7"),  # a service may be called so
    ],
)
def test_where(url: str, places: list[tuple[str, int]], shown: str | None) -> None:
    read = read_redis_url(url)
    assert read.places == tuple(Place(host, port) for host, port in places)
    if shown is not None:
        assert read.shown == shown


def test_sentinels_have_a_service_a_database_and_users_of_their_own() -> None:
    read = read_redis_url("redis+sentinel://u:p@a,b:2/my%20m/5?sentinel_username=su&sentinel_password=s%2Bp")
    assert (read.service, read.db, read.username, read.password) == ("my m", 5, "u", "p")
    assert (read.sentinel_username, read.sentinel_password) == ("su", "s+p")
    assert read.tls is None
    assert read_redis_url("rediss+sentinel://a/m").tls is not None


@pytest.mark.parametrize(
    ("url", "path", "db", "user"),
    [
        ("unix:///run/r.sock", "/run/r.sock", 0, ("", "")),
        ("unix:///a%20b/100%25/c.sock?db=2", "/a b/100%/c.sock", 2, ("", "")),
        ("unix:///a@b.sock", "/a@b.sock", 0, ("", "")),
        ("unix://u:p%2Fq@/r.sock", "/r.sock", 0, ("u", "p/q")),
        ("unix:///r.sock?username=u&password=p%26q", "/r.sock", 0, ("u", "p&q")),
    ],
)
def test_unix_sockets(url: str, path: str, db: int, user: tuple[str, str]) -> None:
    read = read_redis_url(url)
    assert (read.path, read.db, (read.username, read.password), read.places) == (path, db, user, ())


@pytest.mark.parametrize(
    ("url", "user"),
    [
        ("redis://:p@h", ("", "p")),
        ("redis://u@h", ("u", "")),
        ("redis://u:@h", ("u", "")),
        ("redis://u:p%40%3A%2F%23%3F%25@h", ("u", "p@:/#?%")),
        ("redis://u:p@ss:w@h", ("u", "p@ss:w")),  # the last @ counts
        ("redis://h?username=u&password=p", ("u", "p")),
        ("redis://u:p@h?password=p", ("u", "p")),
    ],
)
def test_who(url: str, user: tuple[str, str]) -> None:
    read = read_redis_url(url)
    assert (read.username, read.password) == user
    assert read.places[0].host == "h"


@given(
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1), st.sampled_from(["redis://", "redis+sentinel://"])
)
def test_every_password_that_is_encoded_comes_back(password: str, scheme: str) -> None:
    from urllib.parse import quote

    read = read_redis_url(f"{scheme}u:{quote(password, safe='')}@h/0")
    assert read.password == password


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "empty"),
        ("h:6379", "scheme"),
        ("http://h", "scheme"),
        ("sentinel://h/m", "redis+sentinel://"),
        ("redis-sentinel://h/m", "redis+sentinel://"),
        ("redis://", "names no host"),
        ("redis:///0", "names no host"),
        ("redis://a,b", "several hosts"),
        ("redis://h:0", "port"),
        ("redis://h:70000", "port"),
        ("redis://h:-1", "port"),
        ("redis://h:port", "port"),
        ("redis://h:１", "port"),
        ("redis://::1", "brackets"),
        ("redis://[::1", "read"),
        ("redis://[nonsense]", "IPv6"),
        ("redis://[::1]x", "read"),
        ("redis://h/x", "database"),
        ("redis://h/-1", "database"),
        ("redis://h/1/2", "database"),
        ("redis://h/99999999999", "database"),
        ("redis://h/1?db=2", "database"),
        ("redis://h#x", "'#'"),
        ("redis://h ", "U+0020"),
        ("redis://h?socket_timout=1", "option socket_timout is not known; did you mean socket_timeout"),
        ("redis://h?health_check_interval=3", "option health_check_interval is not known; known are db"),
        ("redis://h?db=1&db=1", "stands twice"),
        ("redis://h?ssl_ca_certs=/x", "ssl_ca_certs is for TLS"),
        ("redis://h?sentinel_password=x", "sentinel_password is for redis+sentinel"),
        ("redis://h?socket_timeout=0", "socket_timeout"),
        ("redis://h?socket_timeout=soon", "socket_timeout"),
        ("redis://h?socket_connect_timeout=nan", "socket_connect_timeout"),
        ("redis://h?socket_timeout=3600", "socket_timeout"),
        ("rediss://h?ssl_cert_reqs=maybe", "ssl_cert_reqs"),
        ("rediss://h?ssl_check_hostname=perhaps", "ssl_check_hostname"),
        ("rediss://h?ssl_keyfile=/k", "ssl_certfile"),
        ("redis+sentinel://h", "names no service"),
        ("redis+sentinel://h/", "names no service"),
        ("redis+sentinel://,h/m", "names no host"),
        ("redis+sentinel://h/m/x", "database"),
        ("redis+sentinel://h/m?service_name=n", "service"),
        ("unix://", "absolute path"),
        ("unix://relative", "absolute path"),
        ("unix:///a%00b", "NUL"),
        ("redis://u:a@h?password=b", "password stands before the host"),
    ],
)
def test_refused_with_a_reason(url: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_redis_url(url)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:x/{SECRET}@h:6379/0",
        f"redis://u:12/{SECRET}@h",
        f"redis://u:1?{SECRET}@h",
        f"redis://u:1?x={SECRET}@h",
        f"redis://u:1?{SECRET}=x@h",
        f"redis://u:1#{SECRET}@h",
        f"redis://u:{SECRET}",
        f"redis://u:{SECRET}@h:99999",
        f"redis://u:x@h?password={SECRET}",
        f"redis+sentinel://u:{SECRET}@h",
        f"redis+sentinel://h/m?sentinel_password={SECRET}&nope=1",
        f"unix://:x/{SECRET}@/r.sock",
        f"unix:///r.sock?password={SECRET}&nope=1",
        f"rediss://h?ssl_password={SECRET}&nope=1",
        f"redis://:{SECRET} @h",
        f"redis://u:p@h?password=x@{SECRET}&nope=1",
        f"redis://u:x@y/{SECRET}@h",
    ],
)
def test_C1_no_fault_shows_what_may_be_a_password(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_redis_url(url)
    assert SECRET not in str(caught.value)
    assert SECRET not in mask_url(url)
    with pytest.raises(ConfigError) as whole:
        load_client_config(flags={"redis_url": url}, environ={})
    assert SECRET not in "".join(whole.value.faults)
    assert SECRET not in str(whole.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis+sentinel://u:{SECRET}@a:1,[::1]:2/m/0", "redis+sentinel://u:***@a:1,[::1]:2/m/0"),
        (f"redis+sentinel://a/m?sentinel_password={SECRET}", "redis+sentinel://a/m?sentinel_password=***"),
        (f"rediss://h?ssl_password={SECRET}&ssl_certfile=/c&ssl_keyfile=/k", None),
        (f"unix://u:{SECRET}@/r.sock?db=1", "unix://u:***@/r.sock?db=1"),
        (f"redis://{SECRET}/x", "redis://(masked)"),
        (SECRET, "(masked)"),
    ],
)
def test_mask_url_of_each_form(url: str, shown: str | None) -> None:
    assert SECRET not in mask_url(url)
    if shown is not None:
        assert mask_url(url) == shown


def test_nothing_secret_in_a_repr() -> None:
    url = f"rediss+sentinel://u:{SECRET}@a/m?sentinel_password={SECRET}&ssl_password={SECRET}"
    read: RedisUrl = read_redis_url(url)
    assert SECRET not in repr(read)
    assert SECRET not in read.shown


def test_C1_a_tls_file_that_is_not_there_is_told_by_check(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    with pytest.raises(ConfigError) as caught:
        load_client_config(flags={"redis_url": f"rediss://:{SECRET}@h?ssl_ca_certs={missing}"}, environ={})
    [fault] = caught.value.faults
    assert "--redis-url" in fault
    assert f"ssl_ca_certs: {str(missing)!r} cannot be read" in fault
    assert SECRET not in fault
    missing.write_text("no certificate")
    with pytest.raises(ConfigError, match="no certificate"):
        load_client_config(flags={"redis_url": f"rediss://h?ssl_ca_certs={missing}"}, environ={})
