# SPDX-License-Identifier: Apache-2.0
"""Functions of ``rths_nodes`` for Python programs and notebooks."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack, overload

from rths_nodes.analysis.identification.experiments import Noise
from rths_nodes.analysis.units import COLUMN
from rths_nodes.app import hosts
from rths_nodes.app.keywords import UNCHANGED, OfRun, OfStudy, Place, Sections, declared_by, split
from rths_nodes.app.results import Run
from rths_nodes.app.studies import engine as engines
from rths_nodes.app.studies import identification, prediction, runs, tuning
from rths_nodes.app.studies import study as studies
from rths_nodes.app.studies.engine import Say, Shown
from rths_nodes.app.studies.prediction import Prediction
from rths_nodes.app.studies.study import Design, Study, StudyFile
from rths_nodes.app.studies.study import load as load_design
from rths_nodes.app.studies.study import plants as drawn
from rths_nodes.app.studies.tuning import Tuned
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.kernels import Function, Kernel
from rths_nodes.core.parameters import Spec, declared
from rths_nodes.core.validation import from_data
from rths_nodes.loop.options import AUTO, EMBEDDED
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import Overrides, Source, with_case
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.loading_model import LoadingModel, save
from rths_nodes.recording import run as recordings
from rths_nodes.recording.reading import read_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rths_nodes.analysis.identification.frequency_responses import Fit, Identified
    from rths_nodes.analysis.identification.from_recording import Estimate
    from rths_nodes.analysis.stability.judgement import Judgement
    from rths_nodes.app.studies.scoreboard import Scoreboard

Laws = Sequence[str | type | Kernel | Function]


@declared_by(Sections)
def load(
    scenario: Source,
    overrides: Overrides = (),
    case: str = "",
    rig: Place = "",
    **keywords: Unpack[Sections],
) -> Scenario:
    """Read, check and build a scenario.

    Parameters
    ----------
    scenario : str, path-like, dict or Scenario
        Name of a shipped scenario, path of a YAML file, contents of such a file, or a loaded Scenario.
    overrides : str, dict, or sequence of these
        Changes, as ``"section.key=value"`` or ``{"section.key": value}``, in SI units. The ``type`` of a section
        may be a class, a :class:`rths_nodes.core.Kernel` or the step function of a kernel.
    case : str
        Name of a case of the scenario.
    rig : str or path-like
        Name or path of the rig file that describes the rig of the test.

    Returns
    -------
    Scenario
        Checked, frozen parameters; ``data()`` returns them as plain data.

    Raises
    ------
    ConfigError
        If the input is invalid. The message lists every problem with its path, value, unit and bound.

    Examples
    --------
    >>> import rths_nodes
    >>> rths_nodes.load("chen_ricles_2010", {"compensator.alpha_es": 29}, duration=10).compensator.alpha_es
    29.0
    >>> rths_nodes.load("chen_ricles_2010", "compensator.alpha_es=-1")
    Traceback (most recent call last):
    rths_nodes.core.errors.ConfigError: compensator.alpha_es = -1 samples: must be >= 1 samples
    """
    changes, unknown = split(keywords, overrides)
    return files.load(scenario, changes, case, rig, **unknown)


@declared_by(OfRun)
def run(
    scenario: Source,
    overrides: Overrides = (),
    *,
    progress: Callable[[int, int], None] | None = None,
    **keywords: Unpack[OfRun],
) -> Run:
    """Run a test and return its histories, indices and timing.

    Parameters
    ----------
    scenario, overrides
        As in :func:`load`.
    progress : callable, optional
        Called as ``progress(sample, samples)`` with the current sample and the number of samples.

    Returns
    -------
    Run
        Histories ``(n_samples + 1, n_axes)`` in SI units, indices in ``metrics``, and ``outcome``. Row 0 is the
        state before the test. A notebook displays a figure of the run.

    Raises
    ------
    ConfigError
        If the input is invalid, if the engine cannot run the test, or if ``engine="compiled"`` cannot translate a
        kernel to C. In the last case, the message names the line of code.

    Examples
    --------
    Replace the scenario's compensator. The step function is compiled, like the package's step functions.

    >>> import rths_nodes
    >>> def lead(k, s, x, v, a, m, f, rests, preparing):
    ...     return s, x + 0.0273 * v
    >>> test = rths_nodes.run("chen_ricles_2010", duration=2.0, compensator=lead)
    >>> f"{1e3 * test.metrics['axes']['story_1']['max_error_m']:.4f} mm"
    '0.0071 mm'
    """
    changes, options = split(keywords, overrides)
    if options.get("host", EMBEDDED) == EMBEDDED or options.get("record") is not None:
        return Run.from_run(hosts.run(scenario, changes, progress=progress, **options).read())
    with tempfile.TemporaryDirectory(prefix="rths_") as folder:
        options |= {"record": Path(folder) / "run"}
        return Run.from_run(hosts.run(scenario, changes, progress=progress, **options).read())


def read(recording: str | Path) -> Run:
    """Read a complete or interrupted recording.

    Parameters
    ----------
    recording : str or path-like
        Folder of the recording, or its MCAP file.

    Returns
    -------
    Run
        Bit-identical to the result of :func:`run` if the recording is complete. ``notes`` describe missing or
        damaged data.

    Raises
    ------
    ConfigError
        If ``recording`` is not a recording of a test.

    Examples
    --------
    >>> import rths_nodes, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     test = rths_nodes.run("predefined_sine", duration=0.5, record=f"{folder}/test")
    ...     bool((rths_nodes.read(f"{folder}/test").displacement == test.displacement).all())
    True
    """
    return Run.from_run(read_run(recording))


def overlay(
    runs: Mapping[str, recordings.Run],
    quantity: str = "displacement",
    ax: Axes | None = None,
    style: str | None = None,
    width: float = COLUMN,
) -> Axes:
    """Draw a quantity of several runs, such as a measured and a simulated run, in one figure.

    Times, velocities and accelerations use the time scale of the structure. Time 0 is the end of the soft start.

    Parameters
    ----------
    runs : dict of Run
        Runs, keyed by legend label.
    quantity : str
        ``error``, ``hysteresis``, or the name of an array, such as ``target`` or ``force``.
    ax, style, width : optional
        As in :meth:`Run.plot`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ConfigError
        If a run lacks the quantity; the message lists the valid quantities.

    Examples
    --------
    >>> import rths_nodes
    >>> from matplotlib.figure import Figure
    >>> poor = rths_nodes.run("predefined_sine", duration=0.5)
    >>> good = rths_nodes.run("predefined_sine", "compensator.alpha_es=29", duration=0.5)
    >>> panel = rths_nodes.overlay({"poor": poor, "good": good}, "error", Figure().subplots())
    >>> [line.get_label() for line in panel.lines]
    ['poor', 'good']
    """
    from rths_nodes.analysis.figures import plot

    return plot.overlay(runs, quantity, ax, style, width)


@declared_by(Sections)
def stability(
    scenario: Source,
    overrides: Overrides = (),
    case: str = "",
    rig: Place = "",
    **keywords: Unpack[Sections],
) -> Judgement:
    """Assess the stability of a test's loop without running the test.

    Parameters
    ----------
    scenario, overrides, case, rig
        As in :func:`load`.

    Returns
    -------
    Judgement
        Attributes ``stable``, ``margin`` (delay margin), ``critical_delay`` (s), ``gain`` and ``modes``. The
        methods ``bode(frequency)`` and ``nyquist(frequency)`` return complex arrays for frequencies in Hz.

    Raises
    ------
    ConfigError
        If the stability cannot be assessed without a run.

    Examples
    --------
    >>> import rths_nodes
    >>> loop = rths_nodes.stability("chen_ricles_2010")
    >>> loop.stable, f"{1e3 * loop.critical_delay:.0f} ms"
    (True, '103 ms')
    >>> loop.bode([1.0, 2.0]).shape
    (2, 1, 1)
    """
    from rths_nodes.analysis.stability.judgement import judge

    return judge(load(scenario, overrides, case, rig, **keywords))


@overload
def estimate(
    recording: Place | recordings.Run,
    axis: str | None = None,
    *,
    begin: float | None = None,
    end: float | None = None,
) -> dict[str, Estimate]: ...


@overload
def estimate(recording: Place | recordings.Run, *, set: Overrides, engine: str = AUTO) -> Prediction: ...


def estimate(
    recording: Place | recordings.Run,
    axis: str | None = None,
    *,
    begin: float | None = None,
    end: float | None = None,
    set: Overrides | None = None,
    engine: str = AUTO,
) -> dict[str, Estimate] | Prediction:
    """Estimate the delay and amplitude ratio of a loading system, or predict a test with other settings.

    Parameters
    ----------
    recording : path-like or Run
        Folder of a recording, or a Run.
    axis : str, optional
        Axis to evaluate; by default all axes.
    begin, end : float, optional
        Limits of the evaluated window, s.
    set : str, dict, or sequence of these, optional
        Changes as in :func:`load`. The changed test is simulated on the rig identified from the recording.
    engine : {'auto', 'python', 'kernels', 'compiled'}
        Engine of the simulations.

    Returns
    -------
    dict of Estimate, or Prediction
        Without ``set``, Estimates keyed by axis: ``tracking`` and ``loading``, each with a ``delay`` (s), and
        ``suggested`` parameters by compensator. With ``set``, a Prediction: ``runs`` and ``indices`` by name
        (``measured``, ``predicted, nothing changed``, ``predicted``). A nonempty ``discrepancy`` states why the
        prediction is unreliable.

    Raises
    ------
    ConfigError
        If the axis is unknown, the window has too little motion, or the changes affect the rig.

    Examples
    --------
    >>> import rths_nodes
    >>> test = rths_nodes.run("chen_ricles_2010", duration=10.0)
    >>> f"{1e3 * rths_nodes.estimate(test)['story_1'].loading.delay:.1f} ms"
    '26.8 ms'
    >>> rths_nodes.estimate(test, set="compensator.type=none").indices["predicted"]["story_1"]["delay_s"] > 0.025
    True
    """
    from rths_nodes.analysis.identification.from_recording import estimate as estimated

    test = recording if isinstance(recording, recordings.Run) else read_run(recording)
    if set is None:
        return estimated(test, axis, begin, end)
    if (axis, begin, end) != (None, None, None):
        raise ConfigError("axis, begin, end: must be left out with set, which repeats the complete test")
    result = prediction.predict(test, set, engine)
    return replace(result, runs={name: Run.from_run(one) for name, one in result.runs.items()})


@overload
def identify(
    scenario: Source,
    overrides: Overrides = (),
    *,
    rig: Place = "",
    case: str = "",
    purpose: Literal["model_based"] = "model_based",
    noise: Mapping[str, float] | None = None,
    resolution: float | None = None,
    transport: str | None = None,
    out: Place | None = None,
    progress: Shown | None = None,
) -> Identified: ...


@overload
def identify(
    scenario: Source,
    overrides: Overrides = (),
    *,
    rig: Place = "",
    case: str = "",
    purpose: Literal["identified_inverse"],
    noise: Mapping[str, float] | None = None,
    fit_up_to: float | None = None,
    out: Place | None = None,
    progress: Shown | None = None,
) -> Fit: ...


def identify(
    scenario: Source,
    overrides: Overrides = (),
    *,
    rig: Place = "",
    case: str = "",
    purpose: str = "model_based",
    noise: Mapping[str, float] | None = None,
    resolution: float | None = None,
    transport: str | None = None,
    fit_up_to: float | None = None,
    out: Place | None = None,
    progress: Shown | None = None,
) -> Identified | Fit:
    """Identify a model of the loading system from tests with noise on one axis at a time.

    Parameters
    ----------
    scenario, overrides, rig, case
        As in :func:`load`.
    purpose : {'model_based', 'identified_inverse'}
        Compensator that uses the model. The coefficients of ``identified_inverse`` include the transport delay
        and are identified with periodic noise.
    noise : dict, optional
        Keys ``rms`` (m), ``lower_frequency`` and ``upper_frequency`` (Hz), ``duration`` (s).
    resolution : float, optional
        Frequency resolution of the responses, Hz; only for ``model_based``.
    transport : {'declared', 'measured'}, optional
        Source of the transport delay that is removed from the responses; only for ``model_based``.
    fit_up_to : float, optional
        Highest frequency of the fit, Hz; only for ``identified_inverse``.
    out : path-like, optional
        Model file to write, for ``compensator={"type": purpose, "model": out}``.
    progress : callable, optional
        As in :func:`study`.

    Returns
    -------
    Identified, or Fit
        For ``model_based``, an Identified: ``fit`` with its ``error``, ``delay`` (s) with its ``delay_range``, and
        the ``measured`` response. For ``identified_inverse``, a Fit: ``coefficients``, ``deviation``, ``error``.

    Raises
    ------
    ConfigError
        If no model can be identified.
    Stopped
        If a test does not finish.

    Examples
    --------
    >>> import rths_nodes
    >>> model = rths_nodes.identify("rths_benchmark_2020", noise={"duration": 10.0})
    >>> bool(model.fit.error.max() < 0.2), model.measured.response.shape[1:]
    (True, (1, 1))
    """
    purposes = identification.MODEL_BASED, identification.IDENTIFIED_INVERSE
    if purpose not in purposes:
        raise unknown("purpose", "purpose", purpose, purposes)
    inverse = purpose == identification.IDENTIFIED_INVERSE
    unused = {"resolution": resolution, "transport": transport} if inverse else {"fit_up_to": fit_up_to}
    if any(value is not None for value in unused.values()):
        raise ConfigError(f"{', '.join(unused)}: must be left out with purpose = {purpose!r}")
    sources = identification.DECLARED, identification.MEASURED
    if transport not in (None, *sources):
        raise unknown("transport", "transport", transport, sources)
    loaded, wanted = files.load(scenario, overrides, case, rig), dict(noise or {})
    driven = identification.periodic_noise(loaded, wanted) if inverse else from_data(Noise, wanted)
    band, source = driven.band, identification.description(driven)
    end = identification.end_of_fit(loaded, band, fit_up_to) if inverse else None
    experiments = identification.run(loaded, driven, None, progress or engines.silent)
    result: Identified | Fit
    model: LoadingModel
    if end is None:
        result, model = identification.fit(loaded, experiments, band, resolution, None, transport, source)
    else:
        result, model = identification.fit_periodic(loaded, experiments, band, end, source)
    if out is not None:
        save(model, out)
    return result


@contextmanager
def _folder(out: Place | None) -> Iterator[Path]:
    """Yield the folder ``out`` or, if None, a temporary folder that is deleted unless an error occurs."""
    if out is not None:
        yield Path(out)
        return
    folder = Path(tempfile.mkdtemp(prefix="rths_"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _of_study() -> dict[str, tuple[Spec, object]]:
    specs = declared(StudyFile).items()
    return {name: (spec, UNCHANGED if spec.required else spec.left_out) for name, spec in specs}


@declared_by(OfStudy, _of_study())
def study(
    file: Place | None = None,
    *,
    out: Place | None = None,
    jobs: int | None = None,
    scheduler: str = "",
    engine: str = AUTO,
    progress: Shown | None = None,
    **contents: Unpack[OfStudy],
) -> Study:
    """Run many variants of a scenario.

    Parameters
    ----------
    file : str or path-like, optional
        Study file (YAML). Without a file, pass the contents of such a file as keyword arguments.
    out : str or path-like, optional
        Folder for table, page and journal. With the journal, the same call continues an interrupted study.
        A finished run is repeated only if one of its components is defined outside a package.
    jobs : int, optional
        Number of parallel runs on this machine; by default one per processor.
    scheduler : str, optional
        Address of a dask scheduler whose workers execute the runs, e.g. ``tcp://host:8786``.
    engine : {'auto', 'python', 'kernels', 'compiled'}
        Engine of the runs; all engines give bit-identical results.
    progress : callable, optional
        Called with the name of the study. Must return a context manager that yields a function
        ``report(done, total)``.

    Returns
    -------
    Study
        Table of runs, with ``columns``, ``to_dataframe()``, ``plot(index)`` and ``spreads(index, factor)``.

    Raises
    ------
    ConfigError
        If the study is invalid. The message lists all problems, and no run is started.

    Examples
    --------
    >>> import rths_nodes
    >>> levels = {"compensator.alpha_es": {"list": [15, 29]}}
    >>> table = rths_nodes.study(scenario="predefined_sine", set={"duration": 0.5}, factors=levels, jobs=1)
    >>> table
    <Study predefined_sine: 2 finished; J1, J2, J3, max_error_mm>
    >>> table.values("max_error_mm").round(2).tolist()
    [1.44, 0.0]
    """
    where, design = engines.chosen(jobs, scheduler, engine), _design(file, contents)
    with _folder(out) as folder:
        table = studies.complete(design, folder, where, studies.Hooks(progress or engines.silent))
        if out is not None:
            studies.write_all(table, folder)
    return table


def _design(file: Place | None, contents: OfStudy) -> Design:
    if (file is None) == (not contents):
        raise ConfigError("study: give either a file or its contents by keyword (scenario, factors, plants, ...)")
    if file is not None:
        return load_design(file)
    if "scenario" not in contents:
        raise ConfigError("scenario: missing")
    loaded = files.load(contents["scenario"])
    data: Data = {"version": 1, "name": loaded.name, **contents, "scenario": loaded.name}
    return Design(from_data(StudyFile, data), Path(), loaded)


def tune(
    scenario: Source,
    overrides: Overrides = (),
    *,
    rig: Place = "",
    case: str = "",
    parameters: Sequence[str] | Mapping[str, tuple[float, float] | None] = (),
    index: str = "J2",
    cases: Sequence[str] = (),
    plants: int = 0,
    seed: int = 1,
    evaluations: int = 60,
    jobs: int | None = None,
    scheduler: str = "",
    engine: str = AUTO,
    progress: Shown | None = None,
    say: Say | None = None,
) -> Tuned:
    """Optimise parameters for the worst of several cases and plants.

    Parameters
    ----------
    scenario, overrides, rig, case
        As in :func:`load`.
    parameters : dict, or sequence of str
        Ranges (low, high) by key, or strings ``KEY[=LOW:HIGH]``. The default range (None) is one third to three
        times the current value. Default: all positive numbers among the compensator's parameters.
    index : str
        Index to minimise, named as in ``rths compare``.
    cases : sequence of str
        Cases to evaluate, instead of the scenario itself.
    plants : int
        Number of plants drawn from the scenario's scatter, in addition to the nominal plant.
    seed : int
        Seed of the plants and of the search.
    evaluations : int
        Number of candidates, at least 8.
    jobs, scheduler, engine, progress
        As in :func:`study`.
    say : callable, optional
        Called with a sequence of remarks; by default, each remark is issued as a warning.

    Returns
    -------
    Tuned
        ``values`` by key; ``before`` and ``worst``, the index in the worst case before and after tuning;
        ``assignments``, the ``values`` as overrides for :func:`run`.

    Raises
    ------
    ConfigError
        If an index or parameter is unknown, or a range exceeds the bounds of its parameter.

    Examples
    --------
    >>> import rths_nodes
    >>> sine = rths_nodes.load("predefined_sine", duration=0.5, compensator={"type": "inverse", "alpha": 20})
    >>> best = rths_nodes.tune(sine, parameters={"compensator.alpha": (15, 40)}, evaluations=12, jobs=1)
    >>> round(best.values["compensator.alpha"]), best.worst < 0.1 * best.before
    (29, True)
    """
    where, loaded = engines.chosen(jobs, scheduler, engine), files.load(scenario, overrides, case, rig)
    counts = ("evaluations", evaluations, tuning.LEAST), ("plants", plants, 0), ("seed", seed, 0)
    for name, value, least in counts:
        if value < least:
            raise ConfigError(f"{name} = {value}: must be >= {least}")
    variants = [with_case(loaded, name) for name in cases] or [loaded]
    chosen = tuning.parameters(loaded, parameters)
    if plants:
        studies.refuse_scattered(loaded, loaded.scatter, (), cases, [parameter.key for parameter in chosen])
    scenarios = [plant.of(variant) for variant in variants for plant in drawn(loaded, plants, seed, nominal=True)]
    search = tuning.Search(scenarios, chosen, index, where)
    samples = sum(one.samples for one in scenarios)
    runs.decided(where, evaluations * samples, scenarios, say or engines.warn)
    with (progress or engines.silent)(loaded.name) as report:
        return search.tune(evaluations, seed, report)


def scoreboard(
    benchmark: Source = "rths_benchmark_2020",
    overrides: Overrides = (),
    *,
    laws: Laws = (),
    settings: Place | Mapping[str, Mapping[str, object]] = "",
    cases: Sequence[str] = (),
    plants: int | None = None,
    noise_seeds: int = 3,
    seed: int = 1,
    records: Sequence[str] = (),
    indices: Sequence[str] = (),
    rank: str | None = None,
    response: str | None = None,
    tune: int = 0,
    training: Overrides = (),
    training_plants: int = 2,
    entry: Place | None = None,
    out: Place | None = None,
    jobs: int | None = None,
    scheduler: str = "",
    engine: str = AUTO,
    progress: Shown | None = None,
) -> Scoreboard:
    """Compare compensators on the same cases, plants and noise, and rank them.

    Parameters
    ----------
    benchmark, overrides
        Scenario and its changes, as in :func:`load`.
    laws : sequence of str, class, Kernel or function
        Compensators; by default all registered compensators and all compensators in ``settings``.
    settings : path-like, or dict
        Settings keyed by compensator: dict, path or shipped file. Other settings come from an identification.
    cases : sequence of str
        Cases to run; by default all cases that set no compensator.
    plants : int, optional
        Number of plants in addition to the nominal plant; by default 100 if the scenario has scatter, else 0.
    noise_seeds, seed : int
        ``noise_seeds``: number of noise seeds. ``seed``: seed of the plants.
    records : sequence of str
        Published ground motions; by default the scenario's ground motion.
    indices : sequence of str
        Indices in the tables, named as in ``rths compare``.
    rank, response : str, optional
        ``rank``: ranking index, by default the tracking error. ``response``: response index in the figure.
    tune : int
        Number of candidates for tuning each law before scoring: 0 (no tuning) or at least 8.
    training, training_plants
        ``training``: changes of the scenario during tuning. ``training_plants``: number of plants for tuning.
    entry : str or path-like, optional
        File for a scoreboard entry, which other groups can verify.
    out : str or path-like, optional
        Folder for page, tables and settings.
    jobs, scheduler, engine, progress
        As in :func:`study`.

    Returns
    -------
    Scoreboard
        ``scores`` by law, best first; methods ``to_dataframe()``, ``plot(index)``. A notebook displays a table.

    Raises
    ------
    ConfigError
        If a name is unknown or a number is invalid; raised before any run.

    Examples
    --------
    >>> import rths_nodes
    >>> short = {"duration": 1.0, "servo_rate": 512.0}
    >>> board = rths_nodes.scoreboard("chen_ricles_2010", short, laws=["none", "inverse"], jobs=1)
    >>> [(score.place, score.law) for score in board.scores]
    [('1', 'inverse'), ('2', 'none')]
    """
    from rths_nodes.app.studies.competition import compete
    from rths_nodes.app.studies.scoreboard import Conditions

    conditions = Conditions(
        laws=laws,
        settings=settings,
        cases=cases,
        plants=plants,
        noise_seeds=noise_seeds,
        seed=seed,
        records=records,
        indices=indices,
        rank=rank,
        response=response,
        tune=tune,
        training=training,
        training_plants=training_plants,
        entry=entry,
    )
    where, loaded = engines.chosen(jobs, scheduler, engine), files.load(benchmark, overrides)
    with _folder(out) as folder:
        return compete(loaded, conditions, folder, where, studies.Hooks(progress or engines.silent))
