"""The same work in other processes, or on a cluster."""

from .executor import Executor, SerialExecutor, Task, executor_of
from .on_ray import RayExecutor
from .processes import ProcessExecutor

__all__ = ["Executor", "ProcessExecutor", "RayExecutor", "SerialExecutor", "Task", "executor_of"]
