"""The search space: options that can be searched and are not given."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from pseudocoreset.data import Data
from pseudocoreset.distillation import DistillOptions, Job
from pseudocoreset.distillation.job import FOR_LEARNED, UPDATE_OPTIONS, form_fits
from pseudocoreset.engine.options import Options, default_of, limits_of, type_of
from pseudocoreset.engine.search import Around, Epochs, Search
from pseudocoreset.errors import UserError
from pseudocoreset.methods import Method, method_name

Choose = Callable[[str, BaseDistribution], Any]
Settings = dict[str, Any]


@dataclass(frozen=True)
class _Searched:
    """One option that is searched."""

    name: str
    search: Search
    value: Any
    """The recipe's."""
    whole: bool
    """Whether it is a whole number."""


def nearest(distribution: BaseDistribution, value: Any) -> Any:
    """The value that a distribution has nearest to this one.

    Args:
        distribution: the values
        value: the one wanted; None for the last epoch there is
    """
    if not isinstance(distribution, IntDistribution | FloatDistribution):
        return value
    if value is None:
        return distribution.high
    return min(max(value, distribution.low), distribution.high)


class Space:
    """All settings that may be tried.

    Args:
        job: what `distill` would do, with the same options
        method: the method as it was given
        options: the options of the loop as they were given
        data: the data set
        epochs: the experts' first and last epoch; None without experts
    """

    def __init__(
        self,
        job: Job,
        method: Method,
        options: DistillOptions,
        data: Data,
        epochs: tuple[int, int] | None,
    ) -> None:
        self._job = job
        self._fixed = {name: getattr(o, name) for o in (options, method) for name in o.given}
        self._data = data
        self._epochs = epochs
        self._searched = [*self._find(options), *self._find(method)]
        if not self.first():
            raise UserError(
                f"{method_name(method)} has no setting left to search: give fewer options, or "
                "another `method`.",
                "method",
            )

    def _find(self, options: Options) -> Iterator[_Searched]:
        for each in fields(options):
            search = limits_of(each).search
            unused = each.name in UPDATE_OPTIONS and not self._job.method.makes_updates
            if search is None or unused or each.name in options.given:
                continue
            if isinstance(search, Epochs) and self._epochs is None:
                continue
            value = self._job.recipe.values.get(each.name, default_of(each))
            if isinstance(search, Epochs):
                value = getattr(self._job.method, each.name)  # as far as the experts go
            whole = type_of(type(options), each.name) in (int, int | None)
            yield _Searched(each.name, search, value, whole)

    def first(self) -> Settings:
        """What `distill` would take: the settings of the first trial."""
        return self.near({})

    def near(self, wanted: Settings) -> Settings:
        """Settings like those wanted, and the recipe's if nothing is said.

        Args:
            wanted: by option; those that have no use beside the others are left out
        """
        values = {each.name: each.value for each in self._searched} | wanted

        return self.walk(lambda name, distribution: nearest(distribution, values[name]))

    def walk(self, choose: Choose) -> Settings:
        """Choose one setting after another; what has no use beside those before is left out.

        Args:
            choose: gives a value of a distribution
        """
        chosen: Settings = {}
        for each in self._searched:
            if each.name in FOR_LEARNED and self._now("labels", chosen) != "learned":
                continue
            distribution = self._distribution(each, chosen)
            if distribution is not None:
                chosen[each.name] = choose(each.name, distribution)
        return chosen

    def has(self, settings: Settings) -> bool:
        """Whether these settings could have been chosen.

        Args:
            settings: what a file says
        """

        def again(name: str, distribution: BaseDistribution) -> Any:
            value = settings[name]
            if isinstance(distribution, CategoricalDistribution):
                good = value in distribution.choices
            else:
                kind = int if isinstance(distribution, IntDistribution) else float
                assert isinstance(distribution, IntDistribution | FloatDistribution)
                good = type(value) is kind and distribution.low <= value <= distribution.high
            if not good:
                raise KeyError(name)
            return value

        try:
            return self.walk(again).keys() == settings.keys()
        except (KeyError, TypeError):
            return False

    @property
    def names(self) -> list[str]:
        """The options that are searched."""
        return [each.name for each in self._searched]

    def _now(self, name: str, chosen: Settings) -> Any:
        """The value of an option in a trial so far."""
        job = self._job
        known = {**job.options.as_dict(), **job.method.as_dict(), **self._fixed, **chosen}
        return known[name]

    def _distribution(self, each: _Searched, chosen: Settings) -> BaseDistribution | None:
        """The values of an option in a trial so far; None if there is no choice."""
        if isinstance(each.search, Around):
            low, high = each.search.bounds(each.value)
            if each.whole:
                return IntDistribution(max(1, round(low)), max(1, round(high)), log=True)
            return FloatDistribution(low, high, log=True)
        if isinstance(each.search, Epochs):
            low, high = self._bounds(each, each.search, chosen)
            return IntDistribution(low, max(low, high))
        texts = [text for text in each.search.values if self._possible(each.name, text)]
        texts = list(dict.fromkeys([*texts, each.value]))
        return CategoricalDistribution(texts) if len(texts) > 1 else None

    def _possible(self, name: str, text: str) -> bool:
        if name == "form":  # a coreset to begin with has its own
            return self._job.start is None and form_fits(text, self._data, self._job.options.ipc)
        return name != "label_start" or text != "experts" or self._epochs is not None

    def _bounds(self, each: _Searched, search: Epochs, chosen: Settings) -> tuple[int, int]:
        """The first and the last epoch that there may be."""
        if self._epochs is None:
            raise ValueError("epochs are searched without experts")
        low, high = max(1, self._epochs[0]), self._epochs[1]
        if search.after is not None:
            low = int(self._now(search.after, chosen))
        elif each.value is not None:
            low = min(low, each.value)
        for other in fields(self._job.method):
            there, last = limits_of(other).search, self._fixed.get(other.name)
            if isinstance(there, Epochs) and there.after == each.name and last is not None:
                high = min(high, last)
        return low, high
