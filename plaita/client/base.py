"""What both clients share: from what a caller says to where it connects, by the same settings as the commands."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Self

from plaita.client.replaying import Manner
from plaita.policy.retention import retention_ms
from plaita.runtime_config import ClientConfig, config_family, load_client_config, load_retention_config
from plaita.store.embedded import Embedded
from plaita.store.keys import Keys, check_tenant


class ClientBase(ABC):
    """Settings, key names and, for ``embedded``, a hold on the server of that folder."""

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        embedded: str | os.PathLike[str] | None = None,
        tenant: str | None = None,
        queue_name: str | None = None,
        consumer_group: str | None = None,
        key_prefix: str | None = None,
    ) -> None:
        """What is given here stands above environment and file. Raises ConfigError, UnreachableError (embedded)."""
        config = load_client_config(
            flags={
                "redis_url": redis_url,
                "embedded": None if embedded is None else os.fspath(embedded),
                "tenant": tenant,
                "queue_name": queue_name,
                "consumer_group": consumer_group,
                "key_prefix": key_prefix,
            }
        )
        self._set_up(config)

    @classmethod
    def from_config(cls, config: ClientConfig) -> Self:
        """A client of settings that are judged already."""
        made = cls.__new__(cls)
        made._set_up(config)
        return made

    def _set_up(self, config: ClientConfig) -> None:
        self.config = config
        self.keys = Keys(
            prefix=config.key_prefix,
            tenant=check_tenant(config.tenant),
            queue=config.queue_name,
            group=config.consumer_group,
            dlq=config.dlq_key,
        )
        self._server = None if config.embedded is None else Embedded.open(config.embedded)
        self._open(config.redis_url if self._server is None else self._server.url)

    @abstractmethod
    def _open(self, url: str) -> None:
        """Make the runner."""

    @property
    def family(self) -> str | None:
        """The config family to stamp on carriers. None, so that any supervisor runs them (ledger C3), for a producer
        that was not told the consumer group and so cannot know it."""
        return config_family(self.config) if "consumer_group" in self.config.sources else None

    @property
    def named_tenant(self) -> str | None:
        """The tenant where one was said, here, by the environment or in the file; None where it is only the default.
        What is the platform's, such as dead letters, is shown whole only to who named none."""
        return self.keys.tenant if "tenant" in self.config.sources else None

    def manner(self, given: Manner | None) -> Manner:
        """How to replay dead letters, the age limit filled in from the settings."""
        manner = given or Manner()
        if manner.max_age_ms is not None:
            return manner
        return replace(manner, max_age_ms=load_retention_config().task_max_age_seconds * 1000)

    def retention_ms(self) -> int:
        """How long a finished row is kept, by the settings; 0 for ever (DECISIONS 17)."""
        kept = load_retention_config()
        return retention_ms(kept.execution_state_ttl_days, kept.task_max_age_seconds)

    def _let_go_of_server(self) -> None:
        """The last clean user of an embedded server stops it (DECISIONS 35)."""
        if self._server is not None:
            self._server.close()
            self._server = None
