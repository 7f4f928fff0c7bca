"""The run-time type checker of the tests; as for mypy, an int will do for a float."""

from typing import Any, Self

from beartype import BeartypeConf, FrozenDict, beartype

# Methods are decorated one by one, without their class: what Self is, is not known.
overrides = FrozenDict({Self: Any})
check = beartype(conf=BeartypeConf(is_pep484_tower=True, hint_overrides=overrides))
