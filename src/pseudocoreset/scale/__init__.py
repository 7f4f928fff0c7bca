"""The same work in other processes, or on a cluster."""

from .executor import Executor, SerialExecutor, Task, executor_of
from .processes import ProcessExecutor

__all__ = ["Executor", "ProcessExecutor", "SerialExecutor", "Task", "executor_of"]
