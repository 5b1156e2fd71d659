"""A plug-in whose import starts a thread that does not end, and needs it in each process."""

import queue
import threading

from plaita.nodes.base import Node

QUESTIONS: queue.Queue = queue.Queue()


def _serve() -> None:
    while True:
        question, answer = QUESTIONS.get()
        answer.put(question * 2)


threading.Thread(target=_serve, name="doubler", daemon=True).start()


class Double(Node):
    node_type = "double"
    node_name = "Double"
    amount: int = 0

    def execute(self, execution):
        answer: queue.Queue = queue.Queue()
        QUESTIONS.put((self.amount, answer))
        return answer.get(timeout=20)
