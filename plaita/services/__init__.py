"""What any supervisor does for executions that wait: events, and later timers of people and clocks (ledger E).

Leaderless: every supervisor runs all of it unless ``--no-services``; each piece of work is claimed in Redis and done by
calls that may be repeated. Read ``host`` (what a service is given), then ``manager``.
"""
