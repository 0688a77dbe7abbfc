# SPDX-License-Identifier: Apache-2.0
"""Large linear structures: the sparse route is the dense one, files say what they mean, wrong ones are refused."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from messages import mentions, naming
from scipy.io import mmwrite
from scipy.sparse import csr_array, diags, save_npz

from rths_nodes.app.cli import main
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import resource
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import from_data
from rths_nodes.mechanics.sparse import Inverse, NotDefinite, dense, diagonal, is_sparse, lowest_modes, product
from rths_nodes.numerical.structures.matrices import Matrices

LARGE = ("central_difference", "cr", "explicit_newmark", "hht_alpha", "kr_alpha", "newmark")
DT = 0.002


def chain(n: int, mass: float = 1000.0, stiffness: float = 1e6) -> tuple[csr_array, csr_array]:
    """A shear beam, clamped below: n equal masses and springs."""
    middle = np.full(n, 2.0 * stiffness)
    middle[-1] = stiffness
    sides = np.full(n - 1, -stiffness)
    k = csr_array(diags([sides, middle, sides], [-1, 0, 1]))
    return diagonal(np.full(n, mass)), k


def structure(storage: str, rows: tuple[Any, Any], **more: Any) -> Matrices:
    data = {
        "mass": rows[0].toarray().tolist(),
        "stiffness": rows[1].toarray().tolist(),
        "damping": {"type": "rayleigh", "ratios": [0.03, 0.03]},
        "storage": storage,
    }
    return Matrices(from_data(Matrices.Params, data | more, "structure"))


def test_a_factor_in_a_band_solves_whatever_the_order() -> None:
    _, stiffness = chain(200)
    mixed = np.random.default_rng(1).permutation(200)
    shuffled = stiffness[mixed][:, mixed]
    right = np.random.default_rng(2).normal(size=(200, 3))
    assert Inverse(shuffled).half_bandwidth == 1
    for vectors in (right, right[:, 0]):
        np.testing.assert_allclose(shuffled @ Inverse(shuffled).dot(vectors), vectors, atol=1e-8)
    with pytest.raises(NotDefinite):
        Inverse(shuffled - 1e6 * diagonal(np.ones(200)))


def test_a_well_filled_band_is_multiplied_as_one() -> None:
    _, stiffness = chain(300)
    vector = np.random.default_rng(1).normal(size=300)
    assert type(product(stiffness)).__name__ == "Band"
    np.testing.assert_allclose(product(stiffness).dot(vector), stiffness @ vector, rtol=1e-12, atol=1e-6)


def test_frequencies_of_a_long_shear_beam_are_those_of_the_closed_form() -> None:
    n, (mass, stiffness) = 3000, chain(3000)
    number = np.arange(1, 9)
    exact = 2.0 * np.sqrt(1e6 / 1000.0) * np.sin((2 * number - 1) * np.pi / (2 * (2 * n + 1)))
    omega, shapes = lowest_modes(mass, stiffness, 8)
    np.testing.assert_allclose(omega, exact, rtol=1e-8)
    np.testing.assert_allclose(shapes.T @ (mass @ shapes), np.eye(8), atol=1e-9)


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("consistent", [False, True])
def test_integrators_on_sparse_matrices_equal_those_on_dense_ones(name: str, consistent: bool) -> None:
    n = 12
    mass, stiffness = chain(n)
    if consistent:
        mass = mass + 200.0 / 1e6 * stiffness
    under_test = {"experimental_at": [1], "experimental_stiffness": [[2e5]]}
    external = np.random.default_rng(3).normal(scale=1e3, size=(301, n))
    tracks = []
    for storage in ("dense", "sparse"):
        model = structure(storage, (mass, stiffness), **under_test)
        assert is_sparse(model.mass) == (storage == "sparse")
        params = from_data(registry.load("integrator", name).Params, {}, "integrator")
        solver = registry.build("integrator", params, model, external, DT)
        rows = []
        for _ in range(300):
            force = np.zeros(n)
            force[0] = 2e5 * solver.displacement[0]
            solver.step(force)
            rows.append(np.concatenate([solver.displacement, solver.velocity, solver.restoring_force]))
        tracks.append(np.array(rows))
    scale = np.abs(tracks[0]).max(axis=0)
    assert np.abs((tracks[1] - tracks[0]) / scale).max() < 1e-9


def test_rotations_without_mass_are_stepped_sparse_as_dense() -> None:
    mass, stiffness = frame_module().frame(3, 1)
    mass = diagonal(np.where(np.arange(18) % 3 == 2, 0.0, mass.diagonal()))
    tracks = []
    for storage in ("dense", "sparse"):
        model = structure(storage, (mass, stiffness))
        external = np.outer(np.sin(np.arange(201) * DT * 20.0), model.mass @ np.ones(18))
        params = from_data(registry.load("integrator", "newmark").Params, {}, "integrator")
        solver = registry.build("integrator", params, model, external, DT)
        for _ in range(200):
            solver.step(np.zeros(18))
        tracks.append(np.concatenate([solver.displacement, solver.velocity]))
    np.testing.assert_allclose(tracks[1], tracks[0], rtol=1e-7, atol=1e-10 * np.abs(tracks[0]).max())


@pytest.mark.parametrize("name", ["central_difference", "explicit_newmark"])
def test_the_stability_limit_is_the_same(name: str) -> None:
    limits = []
    for storage in ("dense", "sparse"):
        model = structure(storage, chain(12), experimental_at=[1], experimental_stiffness=[[5e5]])
        params = from_data(registry.load("integrator", name).Params, {}, "integrator")
        with pytest.raises(ConfigError, match="must be <") as refused:
            registry.build("integrator", params, model, np.zeros((3, 12)), 1.0)
        limits.append(float(str(refused.value).split("must be < ")[1].split()[0]))
    assert limits[1] == pytest.approx(limits[0], rel=1e-5)


def test_growth_through_the_part_under_test_is_refused_by_newmark() -> None:
    undamped = {"type": "rayleigh", "ratios": [0.0, 0.0]}
    under_test = {"experimental_at": [1], "experimental_stiffness": [[9e5]]}
    model = structure("sparse", chain(80), damping=undamped, **under_test)
    params = from_data(registry.load("integrator", "newmark").Params, {}, "integrator")
    with pytest.raises(ConfigError, match=naming("integrator", "newmark")):
        registry.build("integrator", params, model, np.zeros((3, 80)), 0.05)


@pytest.mark.parametrize("name", ["exact", "runge_kutta"])
def test_integrators_with_full_step_matrices_refuse_with_the_reason(name: str) -> None:
    model = structure("sparse", chain(12))
    params = from_data(registry.load("integrator", name).Params, {}, "integrator")
    with pytest.raises(ConfigError, match=naming("matrices", "reduction")):
        registry.build("integrator", params, model, np.zeros((3, 12)), DT)


def test_modal_damping_would_fill_the_matrix_and_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("structure.damping.type", "modal")):
        structure("sparse", chain(12), damping={"type": "modal", "ratios": [0.02]})


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"experimental_at": [1], "experimental_stiffness": [[3e6]]}, ("stiffness", "numerical")),
        ({"experimental_at": [1], "experimental_stiffness": [[-1e5]]}, ("stiffness", "test")),
        ({"experimental_at": [1], "experimental_mass": [[2e3]]}, ("mass", "numerical")),
        ({"experimental_at": [13], "experimental_mass": [[2.0]]}, ("numbers", "1", "12")),
    ],
)
def test_parts_that_leave_no_structure_are_refused(rows: dict[str, Any], words: tuple[str, ...]) -> None:
    for storage in ("dense", "sparse"):
        with pytest.raises(ConfigError) as refused:
            structure(storage, chain(12), **rows)
        assert mentions(str(refused.value), *words) or storage == "dense"


def frame_module() -> Any:
    spec = importlib.util.spec_from_file_location("tall_frame", resource("config", "structures", "tall_frame.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_shipped_matrices_are_what_their_script_makes() -> None:
    for name, made in zip(("mass", "stiffness"), frame_module().frame(), strict=True):
        with np.load(resource("config", "structures", f"tall_frame_{name}.npz")) as parts:
            kept = csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=parts["shape"])
        assert abs(kept - made).max() <= 1e-12 * abs(made).max()


def test_a_beam_of_the_frame_bends_as_a_cantilever() -> None:
    """One column, clamped: 3 E I / L^3 under a force at its end, E A / L along it."""
    module = frame_module()
    _, stiffness = module.frame(1, 0)
    area, inertia = module.COLUMN
    moved = np.linalg.inv(dense(stiffness))
    assert moved[0, 0] == pytest.approx(module.HEIGHT**3 / (3.0 * module.MODULUS * inertia), rel=1e-9)
    assert moved[1, 1] == pytest.approx(module.HEIGHT / (module.MODULUS * area), rel=1e-9)


def written(folder: Path, matrix: Array, kind: str) -> str:
    file = folder / f"k.{kind}"
    if kind == "csv":
        np.savetxt(file, matrix, delimiter=",", fmt="%.17g")
    elif kind == "npz":
        save_npz(file, csr_array(matrix))
    elif kind == "array.npz":
        np.savez_compressed(file, stiffness=matrix, other=np.ones(3))
    else:
        mmwrite(folder / "k.mtx", csr_array(matrix), symmetry="symmetric", precision=17)
        if kind == "mtx.gz":
            file.write_bytes(gzip.compress((folder / "k.mtx").read_bytes()))
    return str(file)


@pytest.mark.parametrize("kind", ["csv", "mtx", "mtx.gz", "npz", "array.npz"])
def test_files_of_all_kinds_are_read_and_kept_sparse(tmp_path: Path, kind: str) -> None:
    mass, stiffness = chain(70)
    save_npz(tmp_path / "m.npz", mass)
    data = {
        "mass": str(tmp_path / "m.npz"),
        "stiffness": written(tmp_path, stiffness.toarray(), kind),
        "damping": {"type": "rayleigh"},
    }
    model = Matrices(from_data(Matrices.Params, data, "structure"))
    assert is_sparse(model.stiffness)
    np.testing.assert_allclose(dense(model.stiffness), stiffness.toarray(), rtol=1e-15)


def test_units_and_directions_are_named(tmp_path: Path) -> None:
    """A frame in kN and mm, with rotations, is the frame in N and m."""
    mass, stiffness = (dense(one) for one in frame_module().frame(4, 1))
    turned = np.arange(len(mass)) % 3 == 2
    lengths = np.where(turned, 1.0, 1e3)  # a displacement in mm
    files = {}
    for name, matrix in (("mass", mass), ("stiffness", stiffness)):
        in_units = matrix / np.outer(lengths, lengths) * 1e3 / 1e3  # N m = 1e-3 kN 1e3 mm
        np.savez(tmp_path / f"{name}.npz", in_units)
        files[name] = str(tmp_path / f"{name}.npz")
    units = {"force_unit": "kN", "length_unit": "mm", "damping": {"type": "rayleigh"}}
    by_node = Matrices(from_data(Matrices.Params, files | units | {"node": ["x", "z", "ry"]}, "structure"))
    numbers = (1 + np.flatnonzero(turned)).astype(float).tolist()
    by_number = Matrices(from_data(Matrices.Params, files | units | {"rotations": numbers}, "structure"))
    for model in (by_node, by_number):
        np.testing.assert_allclose(dense(model.mass), mass, rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(dense(model.stiffness), stiffness, rtol=1e-12, atol=1e-3)
    assert by_node.names[:4] == ("node_1_x", "node_1_z", "node_1_ry", "node_2_x")
    assert by_node.influence[:6].tolist() == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]


def refused_file(folder: Path, kind: str) -> tuple[str, str]:
    """A wrong file, and what is told of it."""
    file = folder / ("bad.mtx" if kind.startswith("mtx") else "bad.csv" if kind == "csv" else "bad.npz")
    match kind:
        case "missing":
            return str(folder / "none.npz"), "No such file"
        case "mtx line":
            file.write_text("%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n1 1 1.0\n2 x 1.0\n")
            line = "Line 4" if tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 12) else ""
            return str(file), f"cannot be read as a matrix in N/m ({line}"
        case "mtx complex":
            file.write_text("%%MatrixMarket matrix coordinate complex symmetric\n1 1 1\n1 1 1.0 0.0\n")
            return str(file), "must be real"
        case "csv":
            rows = [["1.0"] * 70 for _ in range(70)]
            rows[66][3] = "steel"
            file.write_text("\n".join(",".join(row) for row in rows))
            return str(file), "line 67"
        case "shape":
            np.savez(file, np.ones((3, 4)))
            return str(file), "the matrix is 3 x 4, but must be square"
        case "size":
            np.savez(file, np.eye(4))
            return str(file), "number of rows is 4, but must be 70, as in structure.mass"
        case "nan":
            np.savez(file, np.full((70, 70), np.nan))
            return str(file), "must be finite numbers in N/m"
        case "unsymmetric":
            np.savez(file, np.eye(70) + np.eye(70, k=1))
            return str(file), "must be symmetric, but the entry in row 1, column 2"
        case "keys":
            np.savez(file, a=np.eye(2), b=np.eye(2))
            return str(file), "the file has a, b, but must have stiffness"
        case "pickle":
            np.savez(file, np.array([{"a": 1}], dtype=object))
            return str(file), "cannot be read as a matrix"
        case _:
            file.write_bytes(b"PK\x03\x04 nothing")
            return str(file), "cannot be read as a matrix"


@pytest.mark.parametrize(
    "kind",
    [
        "missing",
        "mtx line",
        "mtx complex",
        "csv",
        "shape",
        "size",
        "nan",
        "unsymmetric",
        "keys",
        "pickle",
        "garbage",
    ],
)
def test_wrong_files_are_refused_with_exit_code_2(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save_npz(tmp_path / "m.npz", chain(70)[0])
    file, words = refused_file(tmp_path, kind)
    given = ["--set", f"structure.mass={tmp_path / 'm.npz'}", "--set", f"structure.stiffness={file}"]
    assert main(["check", "tall_frame", *given, "--set", "structure.node=[]"]) == 2
    told = capsys.readouterr()
    assert words in told.err + told.out
    assert "Traceback" not in told.err
