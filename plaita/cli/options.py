"""The options that every ``plaita`` command takes, and the session they open."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from plaita import tenancy
from plaita.errors import ConfigError, PlaitaError

if TYPE_CHECKING:
    from plaita.client import Client
    from plaita.client.operations import Operation
    from plaita.runtime_config import ClientConfig, ConnectionConfig, RetentionConfig

T = TypeVar("T")

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document")]
_SHARED: dict[str, tuple[Any, Any]] = {
    "redis_url": (
        str | None,
        typer.Option(None, "--redis-url", metavar="URL", help="The Redis or Valkey server [env: PLAITA_REDIS_URL]"),
    ),
    "embedded": (
        str | None,
        typer.Option(None, "--embedded", metavar="DIR", help="Use the server in this folder [env: PLAITA_EMBEDDED]"),
    ),
    "tenant": (str | None, typer.Option(None, "--tenant", metavar="ID", help="Whose data [env: PLAITA_TENANT]")),
    "json_output": (bool, typer.Option(False, "--json", help="Print one JSON document")),
}


class Session:
    """What a command works with: the judged settings, a client opened on first use, and how to print."""

    def __init__(self, *, redis_url: str | None, embedded: str | None, tenant: str | None, json_output: bool) -> None:
        self.flags = {"redis_url": redis_url, "embedded": embedded, "tenant": tenant}
        self.json = json_output
        self._client: Client | None = None
        self._told: set[str] = set()

    @functools.cached_property
    def config(self) -> ClientConfig:
        from plaita.runtime_config import load_client_config

        found = load_client_config(flags=self.flags)
        self.tell(found)
        return found

    def tell(self, config: ConnectionConfig) -> None:
        """What was wrong with the settings and not so bad as to stop, each once."""
        from plaita.cli.output import note

        for warning in config.warnings:
            if warning not in self._told:
                self._told.add(warning)
                note(f"WARNING: {warning}")

    @functools.cached_property
    def retention(self) -> RetentionConfig:
        """How long what is over is remembered; what was wrong with those settings is told (ledger D2)."""
        from plaita.runtime_config import load_retention_config

        found = load_retention_config(flags=self.flags)
        self.tell(found)
        return found

    @property
    def named_tenant(self) -> str | None:
        """The tenant where one was said, by flag, environment or file; None where it is only the default."""
        return self.config.tenant if "tenant" in self.config.sources else None

    @property
    def client(self) -> Client:
        if self._client is None:
            from plaita.client import Client

            self._client = Client.from_config(self.config)
            tenancy.set_current_tenant(self._client.keys.tenant)
        return self._client

    def perform(self, operation: Callable[..., Operation[T]], *arguments: Any, **named: Any) -> T:
        """One operation of ``plaita.client.operations`` on this session's keys."""
        return self.client.perform(operation(self.client.keys, *arguments, **named))

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def with_session(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the shared options in place of its ``session`` parameter, and close the session after it."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "session"]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _SHARED.items()
    ]

    @functools.wraps(command)
    def wrapped(*arguments: Any, **named: Any) -> None:
        session = Session(**{name: named.pop(name) for name in _SHARED})
        try:
            with tenancy.tenant_context(tenancy.DEFAULT_TENANT_ID):
                command(*arguments, session=session, **named)
        finally:
            session.close()

    wrapped.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own), *shared]
    )
    return wrapped


def new_app(name: str, help_text: str) -> typer.Typer:
    """A command group in the style of all of them."""
    return typer.Typer(
        name=name,
        help=help_text,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


__all__ = ["ConfigError", "JsonOption", "PlaitaError", "Session", "new_app", "with_session"]
