# SPDX-License-Identifier: Apache-2.0
"""Source text of a module with the loop of one kind of scenario, in the order of ``embedded.py``.

The function ``run`` of the module runs one chunk, from Measurement ``begin`` to ``end``:

    run(begin, end, constants, states, given, out) -> stopped, steps, states

The text has separate lines for each axis, because C cannot index tuples of different types with a variable.
Constants, states and known inputs are arguments, so all scenarios of a kind share one module. ``stopped`` is
the first sample that the loop cannot complete, or -1.

A ``live`` loop, for the executive, includes the safe stop. Its ``given`` ends with ``asked`` (1: brake after the
next Command has been computed, 2: brake immediately). In its result, ``acted`` (1 if a command was sent to the
rig), ``stopping`` and ``resting`` precede the states.

A ``remote`` loop is a live loop without a rig. It has two more arguments, ``half`` and ``reading`` (displacements,
forces, applied commands and flags of a Measurement). Half 0 checks Measurement 0, half 1 computes Command k + 1,
and half 2 checks Measurement k + 1. ``asked`` is 3 if the rig has stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_RESTING, FLAG_SATURATED, FLAG_SOFT_START, FLAG_TRIPPED


class Kind(NamedTuple):
    """Properties of a loop that determine its text. ``dofs`` is the number of degrees of freedom in a Target."""

    axes: int
    dofs: int
    in_floats: bool
    """True if the integrator takes and returns floats instead of arrays of length one."""
    in_tuples: bool
    """True if the integrator takes a tuple instead of an array and, in C, returns tuples."""
    soft_start: bool
    lead: int
    """Number of forces from which the force lead extrapolates, or 0 without a lead."""
    in_time: bool
    """True if the integrator's velocity lags its displacement and must be corrected."""
    ratio: bool
    ramp: str
    still: bool
    """True if a ramp on arrays returns the same acceleration for all degrees of freedom, as one number."""
    setup_on_arrays: bool
    coupled_law: bool
    shown: tuple[int, ...]
    """Number of values per law that each reporting function returns."""
    renewed: bool
    together: bool
    beside: bool
    """True if quantities other than displacements and forces also have limits."""
    converts: bool
    transport: bool
    coupled_rig: bool
    inputs: int
    channels: int
    channel_noise: bool
    sensors: tuple[bool, ...]
    noise: tuple[bool, ...]
    control: bool
    live: bool = False
    remote: bool = False


def laws(kind: Kind) -> int:
    return 1 if kind.coupled_law else kind.axes


def told(kind: Kind) -> list[tuple[int, int, int]]:
    """Return (reporting function, law, number of values) of each report, in order of the compensator's state."""
    return [(which, law, count) for which, count in enumerate(kind.shown) for law in range(laws(kind))]


def sample_columns(kind: Kind) -> dict[str, slice]:
    n, wrong = kind.axes, any(kind.sensors)
    widths = {"target": n, "command": n, "applied": n * kind.converts, "displacement": n, "force": n}
    widths |= {"true_displacement": n * wrong, "true_force": n * wrong, "total": 1, "error": 1}
    return _places(widths | {"channels": kind.channels, "true_channels": kind.channels * kind.channel_noise})


def step_columns(kind: Kind) -> dict[str, slice]:
    names = ("displacement", "velocity", "acceleration", "exact_acceleration", "restoring_force")
    energy = {} if kind.live else {"input_energy": 1}
    return _places(dict.fromkeys(names, kind.dofs) | energy | {"inputs": kind.inputs})


def _places(widths: Mapping[str, int]) -> dict[str, slice]:
    ends = zip(widths.items(), accumulate(widths.values()), strict=True)
    return {name: slice(end - width, end) for (name, width), end in ends}


def width(columns: Mapping[str, slice]) -> int:
    return sum(place.stop - place.start for place in columns.values())


APART, TOGETHER, HANDED_ON = "apart", "together", "handed on"
"""Kinds of ramp. ``APART``: one state for each degree of freedom. ``TOGETHER``: one common state, with arrays.
``HANDED_ON``: no state, because Targets are used directly."""
FEW = 8
"""Largest number of degrees of freedom, or of a lead's force samples, for which the text has separate terms."""
QUANTITIES = ("x", "v", "a", "exact", "r")
IN, IN_IN = 4 * " ", 8 * " "


def each(pattern: str, count: int) -> str:
    return ", ".join(each_line(pattern, count))


def each_line(pattern: str, count: int) -> list[str]:
    return [pattern.replace("#", str(index)) for index in range(count)]


def row(pattern: str, count: int) -> str:
    return f"({each(pattern, count)}{',' if count == 1 else ''})"


def text_of(kind: Kind, kernels: Mapping[str, str], constants: Sequence[str], states: Sequence[str]) -> str:
    where = "\n".join(f"    {name:16} {place}" for name, place in sorted(kernels.items()))
    live = ["asked"] * kind.live + ["half", "reading"] * kind.remote
    noise = ["noise", *["channel_noise"] * kind.channel_noise, *live]
    given = ["excitation", *["external"] * (not kind.live), *["ground", "chance"] * kind.control, *noise]
    results = "acted, stopping, stop_done >= stop_samples, " * kind.live
    title = "One loop over kernels, generated by rths_nodes/loop/compiled/text.py; its globals are"
    lines = [
        *(f'"""{title}\n\n{where}\n"""', "", "import numpy as np", "", ""),
        "def run(begin, end, constants, states, given, out):",
        f"{IN}({', '.join(constants)},) = constants",
        f"{IN}({', '.join(states)},) = states",
        f"{IN}({', '.join(given)},) = given",
        f"{IN}rows, length, shown, marks, steps = out",
        f"{IN}stopped, made, rests, preparing = -1, 0, False, False",
        *[f"{IN}acted, total, error = 0, 0.0, 0.0"] * kind.live,
        f"{IN}for sample in range(begin, end):",
        f"{IN_IN}row = sample - begin",
        *_indented(_sample(kind), IN_IN),
        f"{IN}return stopped, made, {results}({', '.join(states)},)",
    ]
    return "\n".join(lines) + "\n"


def _sample(kind: Kind) -> list[str]:
    commanded = [*_target(kind), *_command(kind), *_checked(kind)]
    if not kind.live:
        return [*commanded, *_rig(kind), *_judged(kind), *_written(kind)]
    driven = [
        *("if stopping == 0 and asked < 2:", *_indented(commanded, IN)),
        *("if stopping == 0 and asked > 0:", *_indented(_begin_stop(kind), IN)),
        *("if stopping > 0:", *_indented(_braked(kind), IN)),
    ]
    judged = ["if stopping == 0:", *_indented(_judged(kind), IN)]
    if kind.remote:
        return _halves(kind, driven, judged)
    return [*driven, "doubt = 0", *_rig(kind), "acted = 1", *_written(kind), *judged]


def _halves(kind: Kind, driven: list[str], judged: list[str]) -> list[str]:
    n = kind.axes
    kept = f"{each('before_#', n)} = {each('sent_#', n)}"
    names = [f"{name}_{axis}" for name in "mfu" for axis in range(n)]
    felt = [f"{name} = reading[{column}]" for column, name in enumerate(names)]
    felt.append(f"doubt = int(reading[{3 * n}])")
    sent = [kept, f"{each('sent_#', n)} = {each('p_#', n)}", _record_command(kind), "acted = 1"]
    first = [f"{each('sent_#', n)} = {each('u_#', n)}", kept]
    return [
        *("if half != 1:", *_indented(felt, IN)),
        *("if half == 0:", *_indented(first, IN)),
        *("if half == 1:", *_indented([*driven, *sent], IN)),
        *("else:", *_indented([f"{each('p_#', n)} = {each('sent_#', n)}", *_written(kind)], IN)),
        *(f"if half == 0 and ({' or '.join(_broken(kind))}):", f"{IN}stopped = sample"),
        *("if half == 2:", *_indented(judged, IN)),
    ]


def _record_command(kind: Kind) -> str:
    return f"record_across(rows, row, ({each('c_#', kind.axes)}, {each('p_#', kind.axes)}), length)"


def _begin_stop(kind: Kind) -> list[str]:
    before, last = row("before_#", kind.axes), row("sent_#", kind.axes)
    return ["stopping, stop_done = 1, 0.0", f"stop_samples = stop_begin(of_stop, stop, {before}, {last})"]


def _braked(kind: Kind) -> list[str]:
    n, lines = kind.axes, ["stop_done += 1.0"]
    lines.append(f"{each('p_#', n)} = {each('stop_command(stop, #, stop_done)', n)}")
    lines.append(f"{each('c_#', n)} = {each('p_#', n)}")
    return lines + [f"put(inputs, 0, {row('0.0', kind.inputs)})"] * (kind.inputs > 0)


def _indented(lines: Iterable[str], by: str) -> list[str]:
    return [by + line if line else line for line in lines]


def _stop(condition: str) -> list[str]:
    return [f"if {condition}:", f"{IN}stopped = sample", f"{IN}break"]


def _target(kind: Kind) -> list[str]:
    n = kind.axes
    lines = ["# Measurement k -> Target, where a step begins"]
    if kind.lead:
        lines += [f"window_{axis}[substep if substep else substeps] = f_{axis}" for axis in range(n)]
    lines.append("if substep == 0 and sample < samples:")
    solve = _solve(kind)
    if kind.soft_start:
        solve = ["if step < before:", *_indented(_prescribed(kind), IN), "else:", *_indented(solve, IN)]
    begun = [f"window_{axis}[0] = f_{axis}" for axis in range(n)] if kind.lead else []
    body = [*solve, *begun, *_motion(kind), "step += 1"]
    return lines + _indented(body, IN)


def _prescribed(kind: Kind) -> list[str]:
    flags = "flags = int(soft_flags[step + 1])"
    still = ["energy = 0.0"] * (not kind.live)
    if kind.dofs > FEW:
        x, v, a = (f"soft_{name}[step + 1]" for name in "xva")
        still += ["work = work_anew(work, x)"] * (not kind.live)
        return [f"x, v, a, exact, r = {x}, {v}, {a}, {a}, nothing", flags, *still]
    rows = ("x", "soft_x"), ("v", "soft_v"), ("a", "soft_a"), ("exact", "soft_a")
    lines = [f"{_numbered(name, kind)} = {each(f'float({of}[step + 1, #])', kind.dofs)}" for name, of in rows]
    still += [f"work = work_anew(work, {row('x_#', kind.dofs)})"] * (not kind.live)
    return [*lines, f"{_numbered('r', kind)} = {each('0.0', kind.dofs)}", flags, *still]


def _numbered(name: str, kind: Kind) -> str:
    return each(f"{name}_#", kind.dofs)


def _solve(kind: Kind) -> list[str]:
    index = "step - before" if kind.soft_start else "step"
    forces = row(f"f_# + {_lead(kind)}" if kind.lead else "f_#", kind.axes)
    inputs = f"np.array({forces}), np.array(pose)" if kind.setup_on_arrays else f"{forces}, pose"
    lines = [f"felt = setup_forces(of_setup, {inputs})"]
    felt = "felt[0]" if kind.in_floats else "felt" if kind.setup_on_arrays or kind.in_tuples else "np.array(felt)"
    lines.append(f"solver, (x, v, a, exact, r) = integrate(of_integrator, solver, {felt}, excitation, {index})")
    if kind.control:
        inputs = f"channels, float(ground[{index}]), float(chance[{index}])"
        lines += [f"controller, wanted = control(of_control, controller, {inputs})", "put(inputs, 0, wanted)"]
    lines += _shared_out(kind)
    if not kind.live:
        force, x = f"external[{index}]", "posed"
        if kind.dofs <= FEW:
            force, x = row(f"external[{kind.dofs} * ({index}) + #]", kind.dofs), row("x_#", kind.dofs)
        lines.append(f"work, energy = work_step((), work, {x}, {force})")
    if kind.soft_start:
        lines.append("flags = 0")
    return lines


def _lead(kind: Kind) -> str:
    if kind.lead > FEW:
        return "dot(slope, window_#)"
    return f"({' + '.join(['0.0', *(f'slope[{at}] * window_#[{at}]' for at in range(kind.lead))])})"


def _shared_out(kind: Kind) -> list[str]:
    d, lines = kind.dofs, []
    late = ("v", "ratio"), ("a", "(ratio * ratio)"), ("exact", "(ratio * ratio)")
    if d > FEW:
        lines += [f"{name} = {name} / {by}" for name, by in late if kind.ratio]
        return [*lines, "posed = numbers(x)", f"pose = {row('posed[#]', d)}"]
    for name in QUANTITIES:
        if kind.in_floats:
            lines.append(f"{name}_0 = {name}")
        elif kind.in_tuples:
            lines.append(f"{_numbered(name, kind)} = {name}")
        else:
            lines += [f"of_{name} = numbers({name})", f"{_numbered(name, kind)} = {each(f'of_{name}[#]', d)}"]
    if kind.ratio:
        lines += [f"{name}_{dof} = {name}_{dof} / {by}" for name, by in late for dof in range(d)]
    return [*lines, f"pose = {row('x_#', d)}"]


def _motion(kind: Kind) -> list[str]:
    columns, d = step_columns(kind), kind.dofs
    at = f"{width(columns)} * made"
    if d > FEW:
        lines = [f"put(steps, {at} + {index * d}, {name})" for index, name in enumerate(QUANTITIES)]
        if not kind.live:
            lines.append(f"steps[{at} + {columns['input_energy'].start}] = energy")
    else:
        values = [_numbered(name, kind) for name in QUANTITIES] + ["energy"] * (not kind.live)
        lines = [f"record(steps, {at}, ({', '.join(values)},))"]
    if kind.inputs:
        lines.append(f"put(steps, {at} + {columns['inputs'].start}, inputs)")
    lines.append("made += 1")
    if kind.ramp == TOGETHER:
        arrays = [f"{name} = np.array({row(f'{name}_#', d)})" for name in "xva"]
        lines += arrays if d <= FEW else [f"{name} = {name}.copy()" for name in "xva"]
        lines += [*_stop("not (all_finite(x) and all_finite(v) and all_finite(a))"), *_in_time(kind, "")]
        return [*lines, "ramp = ramp_follow(of_ramp, ramp, x, v, a)"]
    if d > FEW:
        for name in "xva":
            lines += [f"of_{name} = numbers({name})", f"{_numbered(name, kind)} = {each(f'of_{name}[#]', d)}"]
    whole = " + ".join(f"{name}_{dof}" for name in "xva" for dof in range(d))
    lines += [f"whole = {whole}", *_stop("whole - whole != 0.0")]
    lines += [line for dof in range(d) for line in _in_time(kind, f"_{dof}")]
    if kind.ramp == APART:
        lines += each_line("ramp_# = ramp_follow(of_ramp, ramp_#, x_#, v_#, a_#)", d)
    return lines


def _in_time(kind: Kind, dof: str) -> list[str]:
    if not kind.in_time:
        return []
    late = f"v{dof} = in_time(step_s, half_s, x{dof}, x_before{dof}, a{dof})"
    return [*(["if step >= before:", IN + late] if kind.soft_start else [late]), f"x_before{dof} = x{dof}"]


def _command(kind: Kind) -> list[str]:
    n, d, lines = kind.axes, kind.dofs, ["# Target, Measurement k -> Command k + 1"]
    names, ramp = ("rx", "rv", "ra"), []
    if kind.ramp == APART:
        motion = [row(f"{name}_#", d) for name in names]
        ramp = each_line("rx_#, rv_#, ra_# = ramp_step(of_ramp, ramp_#, substep + 1)", d)
    elif kind.ramp == HANDED_ON:
        motion = [row(f"{name}_#", d) for name in "xva"]
    else:
        ramp = ["rx, rv, ra = ramp_step(of_ramp, ramp, substep + 1)"]
        ramp += ["ra = np.full(len(rx), ra)"] * kind.still
        ramp += [f"all_{name} = numbers({name})" for name in names]
        motion = [row(f"all_{name}[#]", d) for name in names]
    if kind.setup_on_arrays:
        motion = [f"np.array({each})" for each in motion]
    ramp.append(f"to_x, to_v, to_a = setup_axes(of_setup, {', '.join(motion)})")
    for name, of in zip(("c", "cv", "ca"), ("to_x", "to_v", "to_a"), strict=True):
        at = f"float({of}[#])" if kind.setup_on_arrays else f"{of}[#]"
        ramp.append(f"{each(f'{name}_#', n)} = {each(at, n)}")
    lines += ["if sample < samples:", *_indented(ramp, IN)]
    if kind.soft_start:
        lines.append(f"rests, preparing = flags & {FLAG_RESTING} != 0, flags & {FLAG_SOFT_START} != 0")
    if kind.remote:
        lines.append(f"rests = rests or doubt & {FLAG_BRIDGED} != 0")
    if kind.coupled_law:
        rows = ", ".join(row(f"{name}_#", n) for name in ("c", "cv", "ca", "m", "f"))
        lines.append(f"law, wanted_p = law_step(of_law, law, {rows}, rests, preparing)")
        lines.append(f"{each('p_#', n)} = {each('wanted_p[#]', n)}")
    else:
        given = "c_#, cv_#, ca_#, m_#, f_#, rests, preparing"
        lines += each_line(f"law_#, p_# = law_step(of_law, law_#, {given})", n)
    return [*lines, *_shown(kind), "if sample == samples:", f"{IN}break"]


def _shown(kind: Kind) -> list[str]:
    lines, rows = [], told(kind)
    first, count = 0, sum(count for *_, count in rows)
    for which, axis, numbers in rows:
        law = "law" if kind.coupled_law else f"law_{axis}"
        call = f"record(shown, {count} * row + {first}, law_shown_{which}(of_law, {law}))"
        if numbers and kind.renewed:
            lines += [f"if row == 0 or law_renewed({law}):", IN + call, f"{IN}marks[row, {2 + axis}] = row"]
        elif numbers:
            lines.append(call)
        first += numbers
    return lines


def _checked(kind: Kind) -> list[str]:
    n, lines = kind.axes, ["# limits of the Command"]
    targets, commands, sent = row("c_#", n), row("p_#", n), row("sent_#", n)
    if kind.live:  # the reason for a refusal contains the command
        lines.append(_record_command(kind))
    lines += _stop(f"broken_alone(moves, {targets}, {commands}, {sent}) >= 0")
    if kind.together:
        lines += _stop(f"broken_together(groups, {commands}, {sent}) >= 0")
    if kind.inputs:
        lines += _stop("not all_finite(inputs)")
    return lines


def _rig(kind: Kind) -> list[str]:
    n, lines = kind.axes, ["# Command k + 1 -> rig -> Measurement k + 1"]
    if kind.live:
        lines.append(f"{each('before_#', n)} = {each('sent_#', n)}")
    lines.append(f"{each('sent_#', n)} = {each('p_#', n)}")
    if not kind.converts:
        lines.append(f"{each('u_#', n)} = {each('p_#', n)}")
    for axis in range(n) if kind.converts else ():
        lines.append(f"u_{axis} = converted(p_{axis}, resolution_{axis}, range_{axis})")
        lines += _doubted(kind, f"abs(u_{axis}) >= range_{axis}")
    if kind.transport:
        place = "at" if n == 1 else f"{n} * at + #"
        lines.append(f"{each('w_#', n)} = {each(f'line[{place}]', n)}")
        lines.append(f"{each(f'line[{place}]', n)} = {each('u_#', n)}")
        if kind.coupled_rig:
            lines += ["acts = input_line[at].copy()", "input_line[at] = inputs"]
        lines += ["at += 1", f"if {n} * at == len(line):", f"{IN}at = 0"]
    else:
        lines += [f"{each('w_#', n)} = {each('u_#', n)}"] + ["acts = inputs"] * kind.coupled_rig
    if kind.coupled_rig:
        lines.append(f"put(driven, 0, {row('w_#', n)})")
        lines.append("rig, (places, rates, pushes, true) = rig_step(of_rig, rig, driven, acts)")
        lines.append(f"{each('d_#', n)} = {each('float(places[#])', n)}")
        lines.append(f"{each('g_#', n)} = {each('float(pushes[#])', n)}")
        if kind.channel_noise:
            sums = "channels[index] = true[index] + channel_noise[row, index]"
            lines += [f"for index in range({kind.channels}):", IN + sums]
        elif kind.channels:
            lines.append("channels = true")
    for axis in range(n):
        if not kind.coupled_rig:
            lines.append(
                f"rig_{axis}, (d_{axis}, _, g_{axis}) = actuator_{axis}(of_actuator_{axis}, rig_{axis}, w_{axis})"
            )
        lines += _sensed(kind, axis)
    return lines


def _sensed(kind: Kind, axis: int) -> list[str]:
    if not kind.sensors[axis]:
        return [f"m_{axis}, f_{axis} = d_{axis}, g_{axis}"]
    noise = "0.0, 0.0"
    if kind.noise[axis]:
        places = (f"{2 * kind.axes} * row + {2 * axis + which}" for which in (0, 1))
        noise = ", ".join(f"noise[{place}]" for place in places)
    given = f"of_sensors_{axis}, sensed_{axis}, d_{axis}, g_{axis}, {noise}, sample + 1"
    return [
        f"sensed_{axis}, (m_{axis}, f_{axis}, at_end) = sense_{axis}({given})",
        *_doubted(kind, "at_end"),
    ]


def _doubted(kind: Kind, condition: str) -> list[str]:
    return [f"if {condition}:", f"{IN}doubt = {FLAG_SATURATED}"] if kind.live else _stop(condition)


def _broken(kind: Kind) -> list[str]:
    n = kind.axes
    moved, forces = row("m_#", n), row("f_#", n)
    values = f"({each('m_#', n)}, {each('f_#', n)})"
    if kind.beside:
        values = f"[{each('m_#', n)}, {each('f_#', n)}]"
        values += f' + of_errors(zeros, {moved}, {forces}, {row("c_#", n)}, b"")'
    broken = [f"acting(measurements, {values}, 0) >= 0", *["not all_finite(channels)"] * (kind.channels > 0)]
    return broken + ["asked > 2"] * kind.remote


def _judged(kind: Kind) -> list[str]:
    n, lines = kind.axes, []
    if kind.live:
        return [f"if {' or '.join(_broken(kind))}:", *_indented(["stopped = sample", *_begin_stop(kind)], IN)]
    for condition in _broken(kind):
        lines += _stop(condition)
    index = each_line("index_#, (i_#, e_#) = index_step(of_index_#, index_#, c_#, m_#, f_#)", n)
    sums = (each(f"{name}_#", n).replace(", ", " + ") for name in "ie")
    index.append("total, error = " + ", ".join(f"0.0 + {terms}" for terms in sums))
    index += _stop("total - total != 0.0")
    if kind.soft_start:
        anew = [*each_line("index_# = index_anew(c_#, m_#, f_#)", n), "total = error = 0.0"]
        index = ["if preparing:", *_indented(anew, IN), "else:", *_indented(index, IN)]
    return ["# indices", *lines, *index]


def _written(kind: Kind) -> list[str]:
    n, names = kind.axes, {"target": "c", "command": "p", "applied": "u", "displacement": "m", "force": "f"}
    names |= {"true_displacement": "d", "true_force": "g"}
    columns = sample_columns(kind)
    kept = [names[name] for name, place in columns.items() if name in names and place.stop > place.start]
    values = [f"{name}_{axis}" for name in kept for axis in range(n)]
    lines = [f"record_across(rows, row, ({', '.join(values)}, total, error), length)"]
    if kind.channels:
        names = {"channels": "channels", "true_channels": "true"}
        of = names if kind.channel_noise else ["channels"]
        places = {name: f"row + {columns[name].start} * length" for name in of}
        lines += [f"record_across(rows, {places[name]}, {names[name]}, length)" for name in of]
    lines += ["marks[row, 0] = flags"] * kind.soft_start
    if kind.live:
        lines.append(f"marks[row, 1] = doubt + ({FLAG_TRIPPED} if stopping > 0 else 0)")
    ahead = ["substep += 1", "if substep == substeps:", f"{IN}substep = 0"]
    return [*lines, *(["if half == 2:", *_indented(ahead, IN)] if kind.remote else ahead)]
