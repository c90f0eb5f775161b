"""Runs the tests in several processes, which are forked when all files have been collected: ``--forked 5``.

The processes of xdist collect all files each for itself, which takes ten seconds of CPU in each of them. To a plugin, a
forked process is a worker of xdist. A file stays with one process, for its fixtures. Files are begun in their order.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn, cast

import pytest

_INDEX_BYTES = 4


class ForkedProcesses:
    """A plugin that runs the collected tests.

    :param count: how many processes
    """

    def __init__(self, count: int) -> None:
        self._count = count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests; pytest itself does it if files cannot be collected, or are only listed."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        assert threading.active_count() == 1, f"a fork would lose threads: {threading.enumerate()}"
        files = [list(items) for _, items in groupby(session.items, key=lambda item: item.path)]
        vars(session.config)[
            "_tmp_path_factory"
        ].getbasetemp()  # made before a process is forked, since making it empties it
        queue = _Queue(len(files))
        workers = [_Worker(number, session, files, queue) for number in range(min(self._count, len(files)))]
        terminal = session.config.pluginmanager.getplugin("terminalreporter")
        terminal.showfspath = False
        try:
            is_complete = _report(session, workers, queue)
        finally:
            for worker in workers:
                worker.end()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        assert is_complete, "some tests were not run"
        return True


class _Queue:
    """The files that no process has taken yet, by their index: in a pipe, from which every process reads the next."""

    def __init__(self, count: int) -> None:
        self._reading, writing = os.pipe()
        os.write(writing, b"".join(index.to_bytes(_INDEX_BYTES) for index in range(count)))
        os.close(writing)

    def take(self) -> int | None:
        """Take the next file; None behind the last one."""
        data = os.read(self._reading, _INDEX_BYTES)
        return int.from_bytes(data) if data else None

    def clear(self) -> None:
        """Take all files, so that the processes end when they are through theirs."""
        while self.take() is not None:
            pass


class _Worker:
    """A forked process, as the first process has it. Mutable: which test it runs, and whether it has ended."""

    def __init__(self, number: int, session: pytest.Session, files: Sequence[list[pytest.Item]], queue: _Queue) -> None:
        self.reports, sending = Pipe(duplex=False)
        self.running: tuple[str, Any] | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            _run(number, session, files, queue, sending)
        sending.close()

    def end(self) -> None:
        """Interrupt the process if it still runs, and wait until its fixtures are torn down."""
        if not self.reports.closed:
            os.kill(self.pid, signal.SIGINT)
            self.reports.close()
        os.waitpid(self.pid, 0)


def _report(session: pytest.Session, workers: Sequence[_Worker], queue: _Queue) -> bool:
    """Hand on what the processes report until all have ended; return whether each test ran, or one failed."""
    config = session.config
    finished = 0
    by_reports = {worker.reports: worker for worker in workers}
    while by_reports:
        for reports in cast("list[Connection]", wait(list(by_reports))):
            worker = by_reports[reports]
            try:
                what, sent = reports.recv()
            except EOFError:
                del by_reports[reports]
                reports.close()
                if worker.running:
                    _report_death(config, *worker.running)
                continue
            if what == "start":
                worker.running = sent
                config.hook.pytest_runtest_logstart(nodeid=sent[0], location=sent[1])
            elif what == "finish" and worker.running:
                for data in sent:
                    report = config.hook.pytest_report_from_serializable(config=config, data=data)
                    config.hook.pytest_runtest_logreport(report=report)
                config.hook.pytest_runtest_logfinish(nodeid=worker.running[0], location=worker.running[1])
                worker.running = None
                finished += 1
            else:
                raise RuntimeError(f"A process that runs tests failed:\n{sent}")
            if session.shouldfail or session.shouldstop:
                queue.clear()
    return finished == len(session.items) or session.testsfailed > 0


def _report_death(config: pytest.Config, nodeid: str, location: Any) -> None:
    words = "The process ended while it ran this test; the tests behind it in its file were not run."
    report = pytest.TestReport(nodeid, location, {}, "failed", words, "call")
    config.hook.pytest_runtest_logreport(report=report)


def _run(
    number: int, session: pytest.Session, files: Sequence[list[pytest.Item]], queue: _Queue, sending: Connection
) -> NoReturn:
    """Be a forked process: run files until none is left."""
    code = 1
    try:
        _become_worker(number, session.config, sending)
        items = _items(files, queue)
        item = next(items, None)
        try:
            while item and not session.shouldfail and not session.shouldstop:
                after = next(items, None)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                item = after
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not keep fixtures from being torn down
            session.config.hook.pytest_sessionfinish(session=session, exitstatus=0)
        session.config._ensure_unconfigure()  # noqa: SLF001 - where pytest looks for what was never closed
        code = 0
    except KeyboardInterrupt:
        pass
    except BaseException:  # noqa: BLE001 - the first process shows it
        sending.send(("failure", traceback.format_exc()))
    finally:
        sending.close()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _items(files: Sequence[list[pytest.Item]], queue: _Queue) -> Iterator[pytest.Item]:
    while (index := queue.take()) is not None:
        yield from files[index]


def _become_worker(number: int, config: pytest.Config, sending: Connection) -> None:
    """Make the forked process what plugins and tests take for a worker of xdist: no screen, and folders of its own."""
    name = f"gw{number}"
    os.environ["PYTEST_XDIST_WORKER"] = name
    vars(config).update(workerinput={"workerid": name}, workeroutput={})
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(_Sender(config, sending))
    folders: Any = vars(config)["_tmp_path_factory"]
    folders._basetemp = folders.mktemp(name, numbered=False)  # noqa: SLF001 - xdist makes another factory


class _Sender:
    """A plugin of a forked process that sends its reports to the first process, those of a test together."""

    def __init__(self, config: pytest.Config, sending: Connection) -> None:
        self._config = config
        self._sending = sending
        self._reports: list[Any] = []

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        """Called before a test."""
        self._sending.send(("start", (nodeid, location)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called after each phase of a test."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._reports.append(data)

    def pytest_runtest_logfinish(self) -> None:
        """Called behind a test."""
        self._sending.send(("finish", self._reports))
        self._reports = []
