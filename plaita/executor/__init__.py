"""The processes that run user code: a template that forks, and executors that run nodes. No Redis, no decisions."""
