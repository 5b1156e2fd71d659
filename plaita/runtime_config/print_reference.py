"""Prints ``docs/configuration.md`` from the settings, so that the page cannot differ from the code."""

from __future__ import annotations

from pydantic.fields import FieldInfo

from plaita.runtime_config.settings import CredentialConfig, Setting, SupervisorConfig, every_setting

_HEAD = """# Configuration

This page is printed from `plaita/runtime_config/settings.py` by `make docs`; a test compares the two.

Every setting can stand in four places. The first that names it wins:

1. the **flag**: `plaita-supervisor run --executors 8`
2. the **environment**: `PLAITA_EXECUTORS=8`
3. the **file**: `executors = 8` in a TOML file, `--config FILE` or `PLAITA_CONFIG`, else `/etc/plaita/plaita.toml` if
   it is there. A key that is not known, or stands twice, is a fault; the nearest right name is told.
4. the **default**

`plaita-supervisor check` (or `run --check`) prints what would be used and where each value came from. Wrong values are
told all at once, each with its source, and exit with 78; systemd does not try again then:

    $ plaita-supervisor check --executors none --queue-name ''
    plaita-supervisor: flag --queue-name: '': it is empty; right is a name without spaces or control characters
    plaita-supervisor: flag --executors: 'none': input should be a valid integer, ...; right is a whole number ...

The last column says what a bad value does: it *stops* the start, or *warns* and something safe is used. As a flag,
nonsense always stops. Yes/no variables are on for the exact text `1` only.

**Secrets.** What the table names with `_FILE` can be given as a file that holds it (64 KiB at most; line ends behind it
do not count). Under systemd there is a place between environment and file: `plaita.redis_url`, `plaita.credential_key`
and `plaita.callback_secret` in `$CREDENTIALS_DIRECTORY`, which the units fill from `/etc/credstore` where they are
there. Passwords are shown nowhere: not in logs, `status`, `check` or error messages.

**Embedded.** `--embedded DIR` runs the bundled Valkey on a unix socket in `DIR`, with its data there. Other commands
find it with the same flag or `PLAITA_EMBEDDED`. It excludes `--redis-url`; where the two come from different places,
the closer one wins.

**Generations.** Three ids tell whether hosts understand each other. They are in `status`, in the registry and in the
first log line. `cf1-` (family: queue, group, dead letters, key prefix, schema): a carrier of another family is left
alone. `bg1-` (budget: deliveries, lease, age, dead letters kept): a carrier of another budget is left for its own.
`cfg1-`: everything that has meaning; it differing alone stops nothing.

**Which socket.** `$RUNTIME_DIRECTORY/supervisor.sock` under systemd, else `/run/plaita/supervisor.sock` where that can
be written, else `$XDG_RUNTIME_DIR/plaita/` or `/tmp/plaita-UID/`. `plaita-supervisor status --instance NAME` asks
`/run/plaita-NAME/supervisor.sock`. With several live sockets and no choice it lists them and exits with 2.

## Settings
"""


def _default(field: FieldInfo, name: str) -> str:
    special = {
        "executors": "CPUs",
        "instance_id": "host name",
        "consumer_name": "instance id",
        "dlq_key": "QUEUE:dlq",
        "socket": "see above",
    }
    if name in special:
        return special[name]
    value = field.default
    if value is None or value == ():
        return "–"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"`{value}`"


def _bad(setting: Setting) -> str:
    """What a bad value does, in the environment or the file."""
    safe = "no" if setting.switch else "the default"
    outcome = f"warns: {safe}" if setting.optional else "stops"
    bounds = [f"{bound:g}" for bound in (setting.low, setting.high) if bound is not None]
    return outcome + (f"; a number outside warns: the bound ({', '.join(bounds)})" if bounds else "")


def _row(name: str, setting: Setting, field: FieldInfo) -> str:
    endings = ("", "_FILE") if setting.secret else ("",)
    keys = " ".join(f"`{name}{ending.lower()}`" for ending in endings)
    variables = " ".join(f"`{variable}{ending}`" for variable in setting.environment for ending in endings)
    flag = f"`{setting.flag}`" if setting.flag else "–"
    cells = (keys, flag, variables, _default(field, name), setting.about, setting.right, _bad(setting))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page() -> str:
    """The whole page."""
    fields = {**CredentialConfig.model_fields, **SupervisorConfig.model_fields}
    lines = [
        "| file key | flag | environment | default | what it does | right values | a bad value |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_row(name, setting, fields[name]) for name, setting in every_setting().items()]
    return _HEAD + "\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
