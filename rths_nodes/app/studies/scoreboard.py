# SPDX-License-Identifier: Apache-2.0
"""Scoreboard: every compensator on the same cases, plants and noise, ranked (``doc/studies.md``).

Settings come from one identification with periodic noise. Compensators from other packages get the results as
parameters with these names: ``delay``, ``alpha``, ``alpha_es``, ``inverse``, ``model`` (without the transport
delay if they declare ``transport_in_lead``).

Block B has the scenario's ``force_lead``, which compensates the delay of the measured forces. Block A has no
``force_lead``; compensators with the parameter ``lead`` get this time as ``lead``. A scenario without
``force_lead`` has a single block.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rths_nodes.analysis.identification.experiments import Noise
from rths_nodes.analysis.identification.frequency_responses import Experiment, frequency_response
from rths_nodes.analysis.identification.from_recording import discrete_model_spacing, estimate, first_order_alpha
from rths_nodes.analysis.published_indices import heading
from rths_nodes.analysis.study_table import HIGH, StudyTable, index_title, index_unit, percentile
from rths_nodes.analysis.units import COLUMN, rounded
from rths_nodes.app.studies import engine, identification, runs, tuning
from rths_nodes.app.studies.engine import Shown
from rths_nodes.app.studies.study import (
    CASE,
    Design,
    Study,
    StudyFile,
    data_frame,
    html_table,
    plants,
    refuse_scattered,
)
from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, show, within
from rths_nodes.core.parameters import declared, required_names
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import to_data
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.scenario.files import Overrides, pairs_in, pairs_of, replace, with_case
from rths_nodes.loop.scenario.schema import Case, Scenario
from rths_nodes.mechanics.loading_model import DERIVATIVES, LoadingModel, save

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from rths_nodes.analysis.figures.drawing import Drawing

SLOW = 5.0
"""Upper frequency of slow motions, Hz. Their delay is the initial delay of the compensators."""
MODELS = {"model", "inverse", "known"}
"""Compensator parameters that describe the rig. A compensator with such parameters needs at least one of them."""
RESOLUTION = identification.LINES / identification.PERIOD
"""Resolution of the responses, Hz: each interval contains ``LINES`` spectral lines of the noise."""


@dataclass(frozen=True)
class Identified:
    """Results of one identification for all compensators.

    ``delay`` is the mean delay of the axes (s), ``rms`` the rms of the noise (m). ``model`` is the path of a model
    file without the transport delay. The file ``whole_model`` includes this delay. ``inverse`` holds the
    coefficients of ``whole_model`` by derivative. Missing results are empty. ``suggested`` holds parameters by
    compensator and name.
    """

    delay: float
    dt: float
    rms: float
    model: str
    whole_model: str
    inverse: Data
    suggested: Mapping[str, Mapping[str, object]]
    notes: tuple[str, ...] = ()

    @property
    def alpha(self) -> float:
        """Delay constant of the inverse compensation, samples."""
        return first_order_alpha(max(0.0, self.delay), self.dt)


@dataclass(frozen=True)
class Candidate:
    """Compensator with its settings (including the type) as plain data.

    ``reason`` is empty unless the compensator cannot take part.
    """

    name: str
    settings: Data
    reason: str = ""


def identify(scenario: Scenario, folder: Path, progress: Shown) -> Identified:
    """Identify the rig of ``scenario`` and write models to ``folder``.

    Raises ConfigError if the rig cannot be identified, Stopped if a test does not finish, and OSError if a file
    cannot be written.
    """
    rms = Noise().rms
    with suppress(ConfigError):
        rms = identification.SHARE * identification.expected_rms(scenario) or rms
    noise = identification.periodic_noise(scenario, {"rms": rms})
    runs = [*identification.histories(scenario, noise, None, progress, "a smaller ground motion or wider limits")]
    estimates = {axis: estimate(run, axis)[axis] for axis, run in zip(scenario.moved_axes, runs, strict=True)}
    experiments = list(map(identification.experiment, runs))
    notes = [f"{axis}: {note}" for axis, result in estimates.items() for note in result.notes]
    text = f"periodic noise of {noise.rms:.3g} m rms for {noise.duration:g} s"
    band, model, full = identification.BAND, "", ""
    inverse: Data = {}
    try:
        how = identification.DECLARED
        _, fitted = identification.fit(scenario, experiments, band, RESOLUTION, None, how, text)
        model = _saved(fitted, folder / "model.yaml")
    except ConfigError as error:
        notes += [f"no model: {problem}" for problem in error.problems]
    try:
        up_to = identification.fitted_up_to(scenario, band)
        fit, fitted = identification.fit_periodic(scenario, experiments, band, up_to, text)
        full = _saved(fitted, folder / "inverse.yaml")
        inverse = dict(zip(DERIVATIVES, fit.coefficients.tolist(), strict=True))
    except ConfigError as error:
        notes += [f"no inverse: {problem}" for problem in error.problems]
    delay, suggested = _slow_delay(experiments, scenario.dt), next(iter(estimates.values())).suggested
    return Identified(delay, scenario.dt, noise.rms, model, full, inverse, suggested, tuple(notes))


def _saved(model: LoadingModel, path: Path) -> str:
    save(model, str(path.absolute()))
    return str(path.absolute())


def _slow_delay(experiments: Sequence[Experiment], dt: float) -> float:
    """Return the mean delay of the axes in slow motion, s: least-squares slope of the phase up to ``SLOW``."""
    response = frequency_response(experiments, dt, RESOLUTION, (identification.BAND[0], SLOW))
    omega, axes = response.s.imag, range(response.response.shape[1])
    phases = [np.unwrap(np.angle(response.response[:, axis, axis])) for axis in axes]
    return float(np.mean([-(omega @ phase) / (omega @ omega) for phase in phases]))


def chosen(
    scenario: Scenario, identified: Identified, names: Sequence[str], settings: Mapping[str, Mapping[str, object]]
) -> list[Candidate]:
    """Return a candidate for each compensator in ``names``, checked with the scenario.

    Settings come from ``settings``, from the identification, or from the scenario's own compensator, in this order
    of precedence.
    """
    laws = []
    for name in dict.fromkeys(names):
        try:
            law = _settings(scenario, identified, {"type": name} | dict(settings.get(name, {})))
            checked_loop(replace(scenario, [(["compensator"], law)]))
            laws.append(Candidate(name, law))
        except ConfigError as error:
            laws.append(Candidate(name, {}, "; ".join(error.problems)))
    return laws


def _settings(scenario: Scenario, identified: Identified, settings: Data) -> dict[str, object]:
    name = settings["type"]
    built = registry.load("compensator", name)
    parameters, needed = declared(built.Params), set(required_names(built.Params))
    current = dict(to_data(scenario.compensator)) if type(scenario.compensator).type_name == name else {}
    offered = _offered(identified, name, built.transport_in_lead)
    taken = {key: value for key, value in offered.items() if key in parameters and value}
    if current:  # replace only settings that the scenario has
        taken = {key: value for key, value in taken.items() if current.get(key) is not None}
    elif "inverse" in taken:
        taken.pop("model", None)  # the inverse is stored in the scenario itself
    if any(settings.get(key) is not None for key in MODELS):
        current, taken = (
            {key: value for key, value in values.items() if key not in MODELS} for values in (current, taken)
        )
    merged = current | taken | dict(settings)
    if MODELS & parameters.keys() and not any(merged.get(key) is not None for key in MODELS):
        reason = "; ".join(note for note in identified.notes if note.startswith("no "))
        raise ConfigError(f"requires a model, but the identification provides none ({reason})")
    if missing := needed - merged.keys():
        raise ConfigError(
            f"must have settings for {', '.join(sorted(missing))}, because the identification provides no values"
        )
    return merged


def _offered(identified: Identified, name: str, transport_in_lead: bool) -> dict[str, object]:
    return {
        **identified.suggested.get(name, {}),
        "delay": identified.delay,
        "alpha": identified.alpha,
        "alpha_es": identified.alpha,
        "model": identified.model if transport_in_lead else identified.whole_model,
        "inverse": identified.inverse,
        # the two stages of Wang et al. (TADC)
        "first": {"type": "discrete_model", "spacing": discrete_model_spacing(identified.dt)},
        "second": {"type": "polynomial", "order": 2, "delay": identified.delay},
        "compensator": {"type": "inverse", "alpha": identified.alpha},
    }


LAW, SEED, RECORD = "law", "seed", "ground_motion.record"
TRAINING = 1_000_000
"""Difference between the seeds of training and of scoring, for plants and noise."""
WITHOUT, WITH = "A", "B"
PLANTS = 100
SCORED = ("cases", "noise_seeds", "plants", "seed", "indices", "records")
"""Conditions that determine the scores, and that an entry contains."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Conditions of a scoreboard: arguments of :func:`rths_nodes.scoreboard`."""

    laws: Sequence[object] = ()
    settings: str | os.PathLike[str] | Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    cases: Sequence[str] = ()
    plants: int | None = None
    noise_seeds: int = 3
    seed: int = 1
    records: Sequence[str] = ()
    indices: Sequence[str] = ()
    rank: str | None = None
    response: str | None = None
    tune: int = 0
    training: Overrides = ()
    training_plants: int = 2
    entry: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        least = {"noise_seeds": 1, "seed": 0, "tune": 0, "training_plants": 0, "plants": 0}
        for name, bound in least.items():
            value = vars(self)[name]
            if value is not None and value < bound:
                raise ConfigError(f"{name} = {value}: must be >= {bound}")
        if 0 < self.tune < tuning.LEAST:
            raise ConfigError(f"tune = {self.tune}: must be 0 or >= {tuning.LEAST}")

    def resolved(self, scenario: Scenario) -> Conditions:
        """Return these conditions, completed from ``scenario``. The first index determines the rank."""
        rank = self.rank or runs.ranking_index(scenario)
        indices = (rank, *(self.indices or runs.shown_indices(scenario)), self.response or rank)
        plants = (PLANTS if scenario.scatter else 0) if self.plants is None else self.plants
        names = tuple(self.cases or cases(scenario))
        return replace_fields(
            self,
            cases=names,
            plants=plants,
            records=tuple(self.records),
            indices=tuple(dict.fromkeys(indices)),
        )


def cases(scenario: Scenario) -> list[str]:
    return [
        name
        for name, case in scenario.cases.items()
        if not any(key.split(".")[0] == "compensator" for key in case.set)
    ]


def published(scenario: Scenario) -> dict[str, Case]:
    return {name: case for name, case in scenario.cases.items() if case.published}


def blocks(scenario: Scenario) -> dict[str, Data]:
    lead = scenario.force_lead
    return {WITHOUT: {}} if lead is None else {WITHOUT: {"force_lead": None}, WITH: {"force_lead": lead}}


def in_block(scenario: Scenario, law: Candidate, block: Mapping[str, object]) -> dict[str, object]:
    """Return the changes of the scenario for ``law`` in ``block``. The total lead is equal in all blocks."""
    settings = dict(law.settings)
    built = replace(scenario, [(["compensator"], settings)]).compensator
    if "lead" in declared(type(built)) and block:
        settings["lead"] = to_data(scenario)["force_lead"] if block["force_lead"] is None else 0.0
    return {"compensator": settings} | dict(block)


def tuned(
    scenario: Scenario, laws: Sequence[Candidate], conditions: Conditions, where: engine.Where, shown: Shown
) -> tuple[list[Candidate], dict[str, tuning.Tuned]]:
    """Return each law with the best of ``conditions.tune`` settings, and the results of the searches.

    Training uses the nominal and additional plants, the first block and all cases, with separate seeds. A law
    without a tunable number or without stable settings is unchanged. Raises ConfigError, before any run, if a
    setting is invalid.
    """
    training = pairs_in(conditions.training, "training")
    base = replace(scenario, [(["seed"], scenario.seed + TRAINING), *training])
    bases = [with_case(base, name) for name in cases(scenario)] or [base]
    count = conditions.training_plants if scenario.scatter else 0
    refuse_scattered(base, base.scatter if count else {}, (), cases(scenario))
    drawn = plants(base, count, TRAINING + scenario.seed, nominal=True)
    first = next(iter(blocks(scenario).values()))
    able = [law for law in laws if not law.reason]
    searches = {}
    for law in able:
        changes = [([key], value) for key, value in in_block(base, law, first).items()]
        with within(f"training: {law.name}"):
            scenarios = [replace(plant.of(case), changes) for case in bases for plant in drawn]
            if tuning.tunable(scenarios[0]):
                parameters = tuning.parameters(scenarios[0], [])
                searches[law.name] = tuning.Search(scenarios, parameters, conditions.indices[0], where)
    best = {law.name: law for law in laws}
    results = {}
    with shown("tuning") as report:
        for number, law in enumerate(able):
            if search := searches.get(law.name):

                def progress(done: float, total: float, number: int = number) -> None:
                    report(number + min(1.0, done / total), len(able))

                result = search.tune(conditions.tune, scenario.seed, progress)
                results[law.name] = result
                if result.usable:
                    values = {"compensator": dict(law.settings)} | dict(result.values)
                    best[law.name] = Candidate(law.name, to_data(replace(scenario, pairs_of(values)).compensator))
    return [*best.values()], results


def design(scenario: Scenario, chosen: Sequence[Candidate], conditions: Conditions) -> Design:
    """Return the study of all laws that can take part.

    Raises ConfigError if no law can take part, or if a name is unknown.
    """
    able = [law for law in chosen if not law.reason]
    if not able:
        raise ConfigError(*(f"{law.name}: {law.reason}" for law in chosen))
    both = blocks(scenario)
    levels = {
        f"{law.name} {name}" if len(both) > 1 else law.name: in_block(scenario, law, block)
        for law in able
        for name, block in both.items()
    }
    factors: dict[str, object] = {LAW: {"settings": levels}}
    if conditions.cases:
        factors[CASE] = {"list": list(conditions.cases)}
    if conditions.records:
        factors[RECORD] = {"list": list(conditions.records)}
    factors[SEED] = {"list": [scenario.seed + number for number in range(conditions.noise_seeds)]}
    file = StudyFile(
        version=1,
        name=f"{scenario.name}_scoreboard",
        description=f"every compensator in {scenario.name}",
        scenario=scenario.name,
        factors=factors,
        plants=conditions.plants or 0,
        nominal=True,
        seed=conditions.seed,
        indices=tuple(conditions.indices),
    )
    return Design(file, Path(), scenario)


@dataclass(frozen=True)
class Score:
    """Results of a compensator in a block of runs.

    ``median``, ``high`` and ``worst`` are magnitudes of each index. HIGH % of the runs do not exceed ``high``.
    ``failures`` is the number of unfinished runs. ``what`` is the reason why runs failed or why the compensator
    was not run. ``place`` is the rank, or empty if there are no runs. A rank with ``=`` is shared, because the
    noise seeds do not separate the compensators.
    """

    law: str
    block: str
    runs: int
    failures: int
    what: str
    median: Mapping[str, float]
    high: Mapping[str, float]
    worst: Mapping[str, float]
    place: str = ""

    @property
    def unstable(self) -> float:
        return self.failures / self.runs if self.runs else math.nan

    @property
    def kind(self) -> str:
        return "unstable" if self.failures else "stable" if self.runs else "not run"

    def outcome(self) -> str:
        failed = f"{self.failures} of {self.runs} runs, " if self.failures else ""
        return f"{self.kind}: {failed}{self.what}" if self.kind != "stable" else self.kind


@dataclass(frozen=True, eq=False)
class Scoreboard:
    """Scoreboard with its runs and published values, the identification of the rig, and settings by law.

    ``which`` is the index set that numbers the indices (J1, ...). ``axes`` are the ranking and the response index.
    """

    table: Study
    scores: Sequence[Score]
    published: Mapping[str, Case]
    axes: tuple[str, str]
    which: str
    identified: Identified
    settings: Mapping[str, Mapping[str, object]]
    facts: Mapping[str, str]

    @property
    def headings(self) -> list[str]:
        numbers = {index: heading(self.which, index) for index in self.table.indices}
        return [
            index_title(index) if number == index else f"{number} ({index_unit(index)})"
            for index, number in numbers.items()
        ]

    @property
    def rows(self) -> list[tuple[str, str, str, Mapping[str, float], str, str]]:
        """Rows of place, name, block, high value of each index, outcome and kind. Published values are last."""
        rows = [(row.place, row.law, row.block, row.high, row.outcome(), row.kind) for row in self.scores]
        for name, case in self.published.items():
            note = f"published: {case.note}" if case.note else "published"
            rows.append(("", show(name).strip("'"), "", case.published, note, "published"))
        return rows

    def __repr__(self) -> str:
        best = next((score for score in self.scores if score.runs), None)
        first = "" if best is None else f"; best {best.law}, {self.axes[0]} {rounded(best.high[self.axes[0]])}"
        return f"<Scoreboard {self.table.scenario}: {len(self.table)} runs{first}>"

    def _repr_html_(self) -> str:
        rows = [
            [rank, law, block, *(rounded(values.get(index)) for index in self.table.indices), outcome]
            for rank, law, block, values, outcome, _ in self.rows
        ]
        return html_table(["place", "compensator", "block", *self.headings, "outcome"], rows)

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the ranking as a pandas table: place, compensator, runs, and the spread of each index.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        ConfigError
            If pandas is not installed.

        Examples
        --------
        >>> import rths_nodes
        >>> short = {"duration": 1.0, "servo_rate": 512.0}
        >>> board = rths_nodes.scoreboard("chen_ricles_2010", short, laws=["none", "inverse"], jobs=1)
        >>> board.to_dataframe()["compensator"].tolist()
        ['inverse', 'none']
        """
        return data_frame(columns(self))

    def plot(
        self, index: str = "", ax: Axes | None = None, style: str | None = None, width: float = COLUMN
    ) -> Axes:
        """Draw the magnitudes of an index by compensator, as in :meth:`Study.plot`.

        Parameters
        ----------
        index : str
            Index; default: the ranking index.
        ax, style, width : optional
            As in :meth:`rths_nodes.Run.plot`.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ConfigError
            If the index is unknown.

        Examples
        --------
        >>> import rths_nodes
        >>> from matplotlib.figure import Figure
        >>> short = {"duration": 1.0, "servo_rate": 512.0}
        >>> board = rths_nodes.scoreboard("chen_ricles_2010", short, laws=["none", "inverse"], jobs=1)
        >>> [label.get_text() for label in board.plot("J2", Figure().subplots()).get_yticklabels()]
        ['none', 'inverse']
        """
        from rths_nodes.analysis.figures.plot import plot_by_label

        laws = self.table.columns["law"]
        rows = {law: [n for n, other in enumerate(laws) if other == law] for law in dict.fromkeys(laws)}
        return plot_by_label(self.table, index or self.axes[0], rows, ax, style, width)


def drawings(board: Scoreboard) -> Iterator[Drawing]:
    from rths_nodes.analysis.figures.studies import scoreboard_drawings

    levels, rows = board.table.columns["law"], [row for row in board.scores if row.runs]
    labels = [label for row in rows for label in (f"{row.law} {row.block}", row.law) if label in levels]
    return scoreboard_drawings(board.table, labels, *board.axes)


def columns(board: Scoreboard) -> dict[str, list[object]]:
    scores = board.scores
    fields = {"place": "place", "compensator": "law", "block": "block", "runs": "runs", "failures": "failures"}
    columns = {name: [getattr(score, field) for score in scores] for name, field in fields.items()}
    columns["outcome"] = [score.outcome() for score in scores]
    for index in board.table.indices:
        columns[f"{index}_median"] = [score.median.get(index) for score in scores]
        columns[f"{index}_{HIGH:g}_percent"] = [score.high.get(index) for score in scores]
        columns[f"{index}_worst"] = [score.worst.get(index) for score in scores]
    return columns


def scores(table: StudyTable, chosen: Sequence[Candidate], index: str) -> list[Score]:
    """Return the rows of the scoreboard, best first.

    Rows are sorted by fraction of failed runs, then by the ``HIGH`` percentile of ``index``. Rows with equal
    fractions tie if the ranges of this percentile over the noise seeds overlap.
    """
    labels = np.array(table.columns[LAW])
    sizes = {name: table.magnitudes(name) for name in table.indices}
    # an error or delay above its upper limit is stored as NaN, which must not improve the rank
    sizes[index] = np.where(table.finished & np.isnan(sizes[index]), np.inf, sizes[index])
    rows = [
        _score(table, str(label), np.flatnonzero(labels == label), sizes, index) for label in dict.fromkeys(labels)
    ]
    rows.sort(key=lambda row: (row[0].unstable, np.nan_to_num(row[0].high[index], nan=np.inf)))
    places: list[int] = []
    for number, (score, least, _) in enumerate(rows):
        leader, _, largest = rows[places[-1] if places else 0]
        equal = number > 0 and score.unstable == leader.unstable and least <= largest
        places.append(places[-1] if equal else number)
    ranked = [
        replace_fields(score, place=f"{rank + 1}{'=' if places.count(rank) > 1 else ''}")
        for (score, *_), rank in zip(rows, places, strict=True)
    ]
    return [*ranked, *(Score(law.name, "", 0, 0, law.reason, {}, {}, {}) for law in chosen if law.reason)]


def _score(
    table: StudyTable, label: str, rows: NDArray[np.intp], sizes: Mapping[str, Array], index: str
) -> tuple[Score, float, float]:
    """Return the score of ``rows``, and the smallest and largest ``HIGH`` percentile of ``index`` by noise seed.

    Both percentiles are NaN for a single seed, or if failed runs make a percentile infinite.
    """
    law, _, block = label.rpartition(" ")
    if block not in (WITHOUT, WITH):
        law, block = label, WITHOUT
    size = {name: values[rows] for name, values in sizes.items()}
    median, high, worst = (
        {name: percentile(values, percent) for name, values in size.items()} for percent in (50.0, HIGH, 100.0)
    )
    failed = rows[~table.finished[rows]]
    reasons = Counter(f"{table.columns['outcome'][row]}: {table.columns['reason'][row]}" for row in failed)
    commonest = reasons.most_common(1)[0][0] if reasons else ""
    score = Score(law, block, len(rows), len(failed), commonest, median, high, worst)
    seeds = np.array(table.columns[SEED])[rows] if SEED in table.columns else np.zeros(len(rows))
    highs = [percentile(size[index][seeds == seed], HIGH) for seed in np.unique(seeds)]
    if len(highs) == 1 or not np.isfinite(highs).all():
        return score, math.nan, math.nan
    return score, min(highs), max(highs)
