"""The template process: imports engine, nodes and plug-ins once, then forks executors on request.

Started by exec with its socket to the supervisor as descriptor 3 (``plaita.ipc.template_socket``). One thread, always.
Knows nothing of steps. The loop is in ``template_loop``; this module owns the way from exec to Ready.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from plaita.errors import FrameError, InputError
from plaita.executor.identity import drop_to_user
from plaita.executor.plugins import LatePlugin, StartsThreads, load_plugins
from plaita.executor.template_loop import Template
from plaita.ipc.template_socket import (
    EXIT_PRELOAD_FAILED,
    TEMPLATE_FD,
    TREE_VARIABLE,
    Fatal,
    Importing,
    Ready,
    TemplateMessage,
    send,
)
from plaita.unix.processes import ensure_std_fds, thread_count
from plaita.unix.title import set_title

MODULE = "plaita.executor.template"
EXIT_USAGE = 78
EXIT_BUG = 70


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line. Exits with code 2 on a wrong one: the supervisor alone writes it."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description="Started by plaita-supervisor only.")
    parser.add_argument("--generation", type=int, required=True)
    parser.add_argument("--preload", action="append", default=[], metavar="MODULE")
    parser.add_argument("--user")
    parser.add_argument("--temporary", default="", metavar="FOLDER", help="removed when the supervisor is gone")
    parser.add_argument("--late", action="append", default=[], metavar="JSON", help="left by this program to itself")
    parser.add_argument("--title-room", help="room for the process title")
    return parser.parse_args(argv)


def late_plugins(texts: Sequence[str]) -> list[LatePlugin]:
    """What earlier lives of this process have found out, from ``--late``."""
    plugins = []
    for text in texts:
        value = json.loads(text)
        plugins.append(LatePlugin(value["name"], value["reason"], tuple(value["types"])))
    return plugins


def begin_again(argv: Sequence[str], plugin: LatePlugin) -> NoReturn:
    """This process has threads that it must not have: exec it anew (same pid, same socket), the culprit left out."""
    late = json.dumps({"name": plugin.name, "reason": plugin.reason, "types": plugin.types})
    os.set_inheritable(TEMPLATE_FD, True)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", MODULE, *argv, "--late", late])


def peer_pid(sock: socket.socket) -> int:
    """The process that made the socket pair: the supervisor."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])


def take_socket() -> socket.socket:
    """Descriptor 3, closed again in whatever a plug-in starts. Raises OSError when it is no SEQPACKET socket."""
    sock = socket.socket(fileno=TEMPLATE_FD)
    if sock.type != socket.SOCK_SEQPACKET:
        raise OSError(f"descriptor {TEMPLATE_FD} is no SEQPACKET socket")
    sock.set_inheritable(False)
    sock.setblocking(False)
    return sock


def say(sock: socket.socket, message: TemplateMessage) -> None:
    """Tell the supervisor, if it still listens; before Ready there is no loop that could try again."""
    try:
        send(sock, message)
    except (OSError, FrameError) as error:
        print(f"plaita template: the supervisor cannot be told {message.kind}: {error}", file=sys.stderr, flush=True)


def give_up(sock: socket.socket, reason: str) -> NoReturn:
    """Say Fatal, leave with exit code 78 without running anybody's exit handlers."""
    say(sock, Fatal(reason))
    print(f"plaita template: {reason}", file=sys.stderr, flush=True)
    os._exit(EXIT_PRELOAD_FAILED)


def get_ready(sock: socket.socket, argv: Sequence[str], options: argparse.Namespace) -> Template:
    """Become the right user, import everything, answer the loop that is ready to fork. May not return (see above)."""
    late = late_plugins(options.late)

    def importing(name: str) -> None:
        set_title(f"plaita: template gen={options.generation} importing {name}")
        say(sock, Importing(name))

    try:
        if options.user is not None:
            drop_to_user(options.user)
        registry = load_plugins(options.preload, late, importing)
    except InputError as error:
        give_up(sock, str(error))
    except StartsThreads as found:
        begin_again(argv, found.plugin)
    if thread_count() != 1:
        give_up(sock, f"the template has {thread_count()} threads, and no plug-in is known to have started them")
    types = sorted({*registry.names(), *(name for plugin in late for name in plugin.types)})
    template = Template(
        sock,
        generation=options.generation,
        supervisor=peer_pid(sock),
        mark=os.environ.get(TREE_VARIABLE, ""),
        registry=registry,
        late=tuple(late),
        preloaded=tuple(options.preload),
        temporary=options.temporary,
    )
    template.say(Ready(options.generation, os.getpid(), types, {plugin.name: plugin.reason for plugin in late}))
    return template


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """From exec to the end. Never returns: the process ends here, by ``os._exit``."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the supervisor says when to leave, by Exit or by closing the socket
    ensure_std_fds()
    faulthandler.enable(2)  # a plug-in that crashes on import is named in the log by its Python stack
    given = list(sys.argv[1:] if argv is None else argv)
    options = parse_arguments(given)
    try:
        sock = take_socket()
    except OSError as error:
        print(f"plaita template: {error}; this program is started by plaita-supervisor", file=sys.stderr, flush=True)
        os._exit(EXIT_USAGE)
    set_title(f"plaita: template gen={options.generation} starting")
    template = get_ready(sock, given, options)
    set_title(f"plaita: template gen={options.generation}")
    gc.collect()
    gc.freeze()  # what is imported stays for good: collections in executors need not write to these shared pages
    try:
        code = template.run()
    except BaseException:  # noqa: BLE001 - a bug here: say so, and run nobody's exit handlers
        traceback.print_exc()
        code = EXIT_BUG
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
