# SPDX-License-Identifier: Apache-2.0
"""Tests of large linear structures: sparse and dense results agree; matrix files, units, refusals."""

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
from rths_nodes.mechanics.structure import Inverse, NotDefinite, dense, diagonal, is_sparse, lowest_modes, product
from rths_nodes.numerical.structures.matrices import Matrices

LARGE = ("central_difference", "cr", "explicit_newmark", "hht_alpha", "kr_alpha", "newmark")
DT = 0.002


def chain(n: int, mass: float = 1000.0, stiffness: float = 1e6) -> tuple[csr_array, csr_array]:
    """Mass and stiffness of a shear beam that is clamped below: n equal masses and springs."""
    middle = np.full(n, 2.0 * stiffness)
    middle[-1] = stiffness
    sides = np.full(n - 1, -stiffness)
    k = csr_array(diags([sides, middle, sides], [-1, 0, 1]))
    return diagonal(np.full(n, mass)), k


def integrator(name: str, model: Matrices, external: Array | None = None, dt: float = DT) -> Any:
    params = from_data(registry.load("integrator", name).Params, {}, "integrator")
    external = np.zeros((3, len(model.names))) if external is None else external
    return registry.build("integrator", params, model, external, dt)


def structure(storage: str, rows: tuple[Any, Any], **more: Any) -> Matrices:
    data = {
        "mass": rows[0].toarray().tolist(),
        "stiffness": rows[1].toarray().tolist(),
        "damping": {"type": "rayleigh", "ratios": [0.03, 0.03]},
        "storage": storage,
    }
    return Matrices(from_data(Matrices.Params, data | more, "structure"))


def test_band_factor_solves_shuffled_matrix() -> None:
    _, stiffness = chain(200)
    order = np.random.default_rng(1).permutation(200)
    shuffled = stiffness[order][:, order]
    right = np.random.default_rng(2).normal(size=(200, 3))
    assert Inverse(shuffled).half_bandwidth == 1
    for vectors in (right, right[:, 0]):
        np.testing.assert_allclose(shuffled @ Inverse(shuffled).dot(vectors), vectors, atol=1e-8)
    with pytest.raises(NotDefinite):
        Inverse(shuffled - 1e6 * diagonal(np.ones(200)))


def test_dense_band_is_multiplied_as_band() -> None:
    _, stiffness = chain(300)
    vector = np.random.default_rng(1).normal(size=300)
    assert type(product(stiffness)).__name__ == "Band"
    np.testing.assert_allclose(product(stiffness).dot(vector), stiffness @ vector, rtol=1e-12, atol=1e-6)


def test_long_shear_beam_frequencies_match_closed_form() -> None:
    n, (mass, stiffness) = 3000, chain(3000)
    number = np.arange(1, 9)
    exact = 2.0 * np.sqrt(1e6 / 1000.0) * np.sin((2 * number - 1) * np.pi / (2 * (2 * n + 1)))
    omega, shapes = lowest_modes(mass, stiffness, 8)
    np.testing.assert_allclose(omega, exact, rtol=1e-8)
    np.testing.assert_allclose(shapes.T @ (mass @ shapes), np.eye(8), atol=1e-9)


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("consistent", [False, True])
def test_sparse_and_dense_integrators_agree(name: str, consistent: bool) -> None:
    n = 12
    mass, stiffness = chain(n)
    if consistent:
        mass = mass + 200.0 / 1e6 * stiffness
    experimental = {"experimental_at": [1], "experimental_stiffness": [[2e5]]}
    external = np.random.default_rng(3).normal(scale=1e3, size=(301, n))
    tracks = []
    for storage in ("dense", "sparse"):
        model = structure(storage, (mass, stiffness), **experimental)
        assert is_sparse(model.mass) == (storage == "sparse")
        solver = integrator(name, model, external)
        rows = []
        for _ in range(300):
            force = np.zeros(n)
            force[0] = 2e5 * solver.displacement[0]
            solver.step(force)
            rows.append(np.concatenate([solver.displacement, solver.velocity, solver.restoring_force]))
        tracks.append(np.array(rows))
    scale = np.abs(tracks[0]).max(axis=0)
    assert np.abs((tracks[1] - tracks[0]) / scale).max() < 1e-9


def test_sparse_and_dense_newmark_agree_without_rotational_mass() -> None:
    mass, stiffness = frame_module().frame(3, 1)
    mass = diagonal(np.where(np.arange(18) % 3 == 2, 0.0, mass.diagonal()))
    tracks = []
    for storage in ("dense", "sparse"):
        model = structure(storage, (mass, stiffness))
        external = np.outer(np.sin(np.arange(201) * DT * 20.0), model.mass @ np.ones(18))
        solver = integrator("newmark", model, external)
        for _ in range(200):
            solver.step(np.zeros(18))
        tracks.append(np.concatenate([solver.displacement, solver.velocity]))
    np.testing.assert_allclose(tracks[1], tracks[0], rtol=1e-7, atol=1e-10 * np.abs(tracks[0]).max())


@pytest.mark.parametrize("name", ["central_difference", "explicit_newmark"])
def test_sparse_and_dense_stability_limits_agree(name: str) -> None:
    limits = []
    for storage in ("dense", "sparse"):
        model = structure(storage, chain(12), experimental_at=[1], experimental_stiffness=[[5e5]])
        with pytest.raises(ConfigError, match="must be <") as refused:
            integrator(name, model, dt=1.0)
        limits.append(float(str(refused.value).split("must be < ")[1].split()[0]))
    assert limits[1] == pytest.approx(limits[0], rel=1e-5)


def test_newmark_refuses_unstable_experimental_part() -> None:
    undamped = {"type": "rayleigh", "ratios": [0.0, 0.0]}
    experimental = {"experimental_at": [1], "experimental_stiffness": [[9e5]]}
    model = structure("sparse", chain(80), damping=undamped, **experimental)
    with pytest.raises(ConfigError, match=naming("integrator", "newmark")):
        integrator("newmark", model, dt=0.05)


@pytest.mark.parametrize("name", ["exact", "runge_kutta"])
def test_integrators_with_full_matrices_refuse_sparse_structures(name: str) -> None:
    with pytest.raises(ConfigError, match=naming("matrices", "reduction")):
        integrator(name, structure("sparse", chain(12)))


def test_modal_damping_is_refused_for_sparse_matrices() -> None:
    with pytest.raises(ConfigError, match=naming("structure.damping.type", "modal")):
        structure("sparse", chain(12), damping={"type": "modal", "ratios": [0.02]})


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ({"experimental_at": [1], "experimental_stiffness": [[3e6]]}, ("stiffness", "numerical")),
        ({"experimental_at": [1], "experimental_stiffness": [[-1e5]]}, ("stiffness", "test")),
        ({"experimental_at": [1], "experimental_mass": [[2e3]]}, ("mass", "numerical")),
        ({"experimental_at": [13], "experimental_mass": [[2.0]]}, ("numbers", "1", "12")),
    ],
)
def test_invalid_experimental_parts_are_refused(rows: dict[str, Any], parts: tuple[str, ...]) -> None:
    for storage in ("dense", "sparse"):
        with pytest.raises(ConfigError) as refused:
            structure(storage, chain(12), **rows)
        assert mentions(str(refused.value), *parts) or storage == "dense"


def frame_module() -> Any:
    spec = importlib.util.spec_from_file_location("tall_frame", resource("config", "structures", "tall_frame.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_shipped_matrices_match_their_script() -> None:
    for name, matrix in zip(("mass", "stiffness"), frame_module().frame(), strict=True):
        with np.load(resource("config", "structures", f"tall_frame_{name}.npz")) as parts:
            shipped = csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=parts["shape"])
        assert abs(shipped - matrix).max() <= 1e-12 * abs(matrix).max()


def test_column_of_frame_bends_as_cantilever() -> None:
    """Stiffness of one clamped column: 3 E I / L^3 across, E A / L along."""
    module = frame_module()
    _, stiffness = module.frame(1, 0)
    area, inertia = module.COLUMN
    compliance = np.linalg.inv(dense(stiffness))
    assert compliance[0, 0] == pytest.approx(module.HEIGHT**3 / (3.0 * module.MODULUS * inertia), rel=1e-9)
    assert compliance[1, 1] == pytest.approx(module.HEIGHT / (module.MODULUS * area), rel=1e-9)


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
def test_matrix_files_are_read_as_sparse(tmp_path: Path, kind: str) -> None:
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


def test_units_and_directions_of_matrix_files(tmp_path: Path) -> None:
    """A frame with rotations in kN and mm equals the frame in N and m."""
    mass, stiffness = (dense(matrix) for matrix in frame_module().frame(4, 1))
    rotational = np.arange(len(mass)) % 3 == 2
    lengths = np.where(rotational, 1.0, 1e3)  # displacements in mm
    files = {}
    for name, matrix in (("mass", mass), ("stiffness", stiffness)):
        in_units = matrix / np.outer(lengths, lengths) * 1e3 / 1e3  # N m = 1e-3 kN 1e3 mm
        np.savez(tmp_path / f"{name}.npz", in_units)
        files[name] = str(tmp_path / f"{name}.npz")
    units = {"force_unit": "kN", "length_unit": "mm", "damping": {"type": "rayleigh"}}
    by_node = Matrices(from_data(Matrices.Params, files | units | {"node": ["x", "z", "ry"]}, "structure"))
    numbers = (1 + np.flatnonzero(rotational)).astype(float).tolist()
    by_number = Matrices(from_data(Matrices.Params, files | units | {"rotations": numbers}, "structure"))
    for model in (by_node, by_number):
        np.testing.assert_allclose(dense(model.mass), mass, rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(dense(model.stiffness), stiffness, rtol=1e-12, atol=1e-3)
    assert by_node.names[:4] == ("node_1_x", "node_1_z", "node_1_ry", "node_2_x")
    assert by_node.influence[:6].tolist() == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    assert by_number.influence[:3].tolist() == [1.0, 1.0, 0.0]


LINE = "Line 4" if tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 12) else ""
MTX = "%%MatrixMarket matrix coordinate"
STEEL = [["steel" if (row, column) == (66, 3) else "1.0" for column in range(70)] for row in range(70)]
INVALID: dict[str, tuple[Any, str]] = {
    "missing": (None, "No such file"),
    "mtx line": (f"{MTX} real symmetric\n2 2 2\n1 1 1.0\n2 x 1.0\n", f"cannot be read as a matrix in N/m ({LINE}"),
    "mtx complex": (f"{MTX} complex symmetric\n1 1 1\n1 1 1.0 0.0\n", "must be real"),
    "csv": ("\n".join(map(",".join, STEEL)), "line 67"),
    "shape": ({"a": np.ones((3, 4))}, "the matrix is 3 x 4, but must be square"),
    "size": ({"a": np.eye(4)}, "number of rows is 4, but must be 70, as in structure.mass"),
    "nan": ({"a": np.full((70, 70), np.nan)}, "must be finite numbers in N/m"),
    "unsymmetric": ({"a": np.eye(70) + np.eye(70, k=1)}, "must be symmetric, but the entry in row 1, column 2"),
    "keys": ({"a": np.eye(2), "b": np.eye(2)}, "the file has a, b, but must have stiffness"),
    "pickle": ({"a": np.array([{"a": 1}], dtype=object)}, "cannot be read as a matrix"),
    "garbage": ("PK\x03\x04 nothing", "cannot be read as a matrix"),
}
"""Text or arrays of a file, and a part of the message."""


@pytest.mark.parametrize("kind", INVALID)
def test_invalid_matrix_files_are_refused(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    save_npz(tmp_path / "m.npz", chain(70)[0])
    content, reason = INVALID[kind]
    file = tmp_path / f"bad.{kind.split()[0] if kind.startswith(('mtx', 'csv')) else 'npz'}"
    if isinstance(content, str):
        file.write_text(content)
    elif content is not None:
        np.savez(file, **content)
    overrides = [f"--set=structure.mass={tmp_path / 'm.npz'}", f"--set=structure.stiffness={file}"]
    assert main(["check", "tall_frame", *overrides, "--set=structure.node=[]"]) == 2
    output = capsys.readouterr()
    assert reason in output.err + output.out
    assert "Traceback" not in output.err
