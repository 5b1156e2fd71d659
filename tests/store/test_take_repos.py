"""take leaves what this host denies alone, unclaimed: the twin of ``policy.repos`` (ledger G6)."""

from __future__ import annotations

import pytest

from plaita.policy.repos import is_denied
from plaita.store import carriers

IDLE = 86_400_000
REPOS = [
    "/srv/secret", "secret", "/elsewhere/secret/", "/srv/secret//", "secret/", "/srv/secret-2", "/srv/Secret",
    "/secret/app", "/", "", "//", "my work", "/srv/my work", "a" * 4000, "/" * 4000, "名前", "%d", "(", "/x/%a+", ".",
    "[^",
]  # fmt: skip
DENIED = ("secret", "my work", "名前", "%d", "(", "%a+", "[^")


@pytest.mark.parametrize("repo", REPOS)
def test_G6_the_script_denies_what_the_policy_denies(world, repo: str):
    entry = world.raw("XADD", world.keys.queue, "*", "payload", "{}", "repo", repo).decode()
    world.take(1)  # delivered as new, whoever it is for: what then is admission's
    world.raw("XCLAIM", world.keys.queue, world.keys.group, "dead", 0, entry, "IDLE", IDLE, "JUSTID")
    taken = world.take(1, denied_repos=DENIED)
    assert (taken.entries == []) is is_denied(repo, DENIED)
    if taken.entries == []:
        [pending] = world.raw("XPENDING", world.keys.queue, world.keys.group, "-", "+", 10)
        assert (pending[1], pending[3]) == (b"dead", 1), "neither claimed nor counted"


def test_G6_others_beside_it_are_taken_and_so_is_it_by_who_does_not_deny_it(world):
    names = [world.raw("XADD", world.keys.queue, "*", "repo", one).decode() for one in ("/a/secret", "/a/open")]
    names.append(world.raw("XADD", world.keys.queue, "*", "payload", "{}").decode())
    world.take(9)
    world.raw("XCLAIM", world.keys.queue, world.keys.group, "dead", 0, *names, "IDLE", IDLE, "JUSTID")
    assert [entry.entry_id for entry in world.take(9, denied_repos=DENIED).entries] == names[1:]
    assert [entry.entry_id for entry in world.take(9, in_hand=[f"q {name}" for name in names[1:]]).entries] == names[:1]


def test_G6_a_long_list_and_one_in_hand_are_told_apart(world):
    entry = world.raw("XADD", world.keys.queue, "*", "repo", "r7").decode()
    world.take(1)
    world.raw("XCLAIM", world.keys.queue, world.keys.group, "dead", 0, entry, "IDLE", IDLE, "JUSTID")
    many = tuple(f"r{number}" for number in range(1000) if number != 7)
    assert world.take(1, denied_repos=many, in_hand=[f"q {entry}"]).entries == []
    assert [one.entry_id for one in world.take(1, denied_repos=many).entries] == [entry]


def test_the_call_names_its_arguments_in_order(world):
    call = carriers.take(world.keys, carriers.Take("c", 1, 0, "h/1", denied_repos=("a", "b c"), in_hand=("q 1-0",)))
    assert call.args[-2:] == ("a\nb c", "q 1-0")
