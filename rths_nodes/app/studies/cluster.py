# SPDX-License-Identifier: Apache-2.0
"""Work on the dask.distributed cluster of a scheduler. The workers need this package.

dask reassigns the work of a dead worker. A piece of work that has killed several workers is lost.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from rths_nodes.app.studies.tasks import Job, Lost, Progress, R
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.version import __version__

if TYPE_CHECKING:
    from distributed import Client, Future

PATIENCE_S = 10.0
"""Timeout until the scheduler responds and has a worker, s."""
AHEAD = 4
AT_LEAST = 16
"""Minimum number of pieces of work submitted in advance."""


def as_completed(
    work: Callable[..., R], jobs: Iterable[Job], count: int, scheduler: str, progress: Progress | None
) -> Iterator[tuple[int, R | Lost]]:
    """Yield results as ``engine.as_completed`` does, on the cluster of ``scheduler``.

    Raises ConfigError if the cluster is unusable, and OSError if the connection is lost.
    """
    with _client(scheduler) as client:
        from distributed import as_completed

        shares, waiting, token = np.zeros(count), iter(jobs), uuid.uuid4().hex[:12]
        under_way = as_completed(loop=client.loop)
        numbers: dict[str, int] = {}
        while True:
            wanted = max(AT_LEAST, AHEAD * sum(client.nthreads().values()))
            while len(numbers) < wanted and (job := next(waiting, None)) is not None:
                # new keys, so that dask does not reuse results of an earlier study
                key = f"rths-{token}-{job[0]}"
                numbers[key] = job[0]
                under_way.add(client.submit(_work, work, __version__, job[1], key=key, pure=False))
            if not numbers:
                return
            future = next(under_way)
            number, result = numbers.pop(future.key), _result(future, scheduler)
            shares[number] = 1.0
            if progress:
                progress(shares.tolist())
            yield number, result


def _work(work: Callable[..., R], version: str, arguments: tuple[object, ...]) -> R:
    if version != __version__:
        raise ConfigError(
            f"a worker has rths_nodes {__version__}, but the study has {version}, so results may differ"
        )
    return work(*arguments, lambda share: None)


def _result(future: Future, scheduler: str) -> Any:
    from distributed import CancelledError, KilledWorker

    try:
        return future.result()
    except KilledWorker as error:
        return Lost(f"the workers that executed this run have ended: {error}".partition("\n")[0])
    except CancelledError as error:
        raise ConnectionError(f"scheduler {scheduler}: the connection was lost during the study") from error
    except ModuleNotFoundError as error:
        raise ConfigError(f"scheduler {scheduler}: a worker lacks a module that a run needs ({error})") from error
    except ConfigError as error:
        raise error.within(f"scheduler {scheduler}") from None


@contextmanager
def _client(scheduler: str) -> Iterator[Client]:
    try:
        from distributed import Client
    except ImportError:
        raise ConfigError("scheduler: needs dask.distributed (pip install distributed)") from None
    try:
        client = Client(scheduler, timeout=PATIENCE_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"scheduler {scheduler}: no dask scheduler responds at this address ({error})") from None
    try:
        try:
            client.wait_for_workers(1, timeout=PATIENCE_S)
        except TimeoutError:
            raise ConfigError(f"scheduler {scheduler}: has no workers. Start workers with 'dask worker'") from None
        yield client
    finally:
        client.close()
