"""What ``plaita doctor`` says: facts in, findings out, one module an area. Pure: who gathers is ``client/doctor.py``
for Redis and ``cli/doctor_host.py`` for this host.

A check is a function from the facts of its area to findings; ``CHECKS`` of each module is the table of them. A fact
that could not be had is None, and its check says so by a note or says nothing: looking never fails.
"""

from plaita.policy.doctor.finding import Finding, Severity, worst

__all__ = ["Finding", "Severity", "worst"]
