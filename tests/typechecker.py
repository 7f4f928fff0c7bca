"""The run-time type checker of the tests; as for mypy, an int will do for a float."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
