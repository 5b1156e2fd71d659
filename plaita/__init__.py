"""plaita runs durable flows on bare-metal hosts."""

__version__ = "0.1.0"
