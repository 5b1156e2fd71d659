"""The settings of plaita's processes: read once, judged whole, explained by source (ledger C1, C2).

Owns: which settings exist, their names as flag, environment variable and TOML key, which values are right, where a
value came from, and the three generations that hosts compare. Must not: talk to Redis, import plug-ins, or keep
looking at the environment after the start.

Read `settings` (what exists), then `load` (the order of things).
"""

from plaita.runtime_config.generations import Generations, config_family, effective, generations
from plaita.runtime_config.host import default_socket, socket_path_fault, user_socket
from plaita.runtime_config.load import (
    DEFAULT_CONFIG_FILE,
    load_client_config,
    load_credential_config,
    load_retention_config,
    load_runtime_config,
    load_tenant_config,
)
from plaita.runtime_config.secrets import mask_url
from plaita.runtime_config.settings import (
    ClientConfig,
    ConnectionConfig,
    CredentialConfig,
    RetentionConfig,
    Setting,
    SupervisorConfig,
    TenantConfig,
    every_setting,
    settings_of,
)

__all__ = [
    "DEFAULT_CONFIG_FILE",
    "ClientConfig",
    "ConnectionConfig",
    "CredentialConfig",
    "Generations",
    "RetentionConfig",
    "Setting",
    "SupervisorConfig",
    "TenantConfig",
    "config_family",
    "default_socket",
    "effective",
    "every_setting",
    "generations",
    "load_client_config",
    "load_credential_config",
    "load_retention_config",
    "load_runtime_config",
    "load_tenant_config",
    "mask_url",
    "settings_of",
    "socket_path_fault",
    "user_socket",
]
