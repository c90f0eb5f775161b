"""Agent sessions that were made up with their facts, for what a summary of an agent's work has to keep.

Each has long results, nearly equal rounds, and a rule that the user replaces. A fact is a tuple of fragments that
must all stand in what the model reads after the compaction.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

Values = list[dict[str, object]]


@dataclass(slots=True)
class Session:
    """A conversation in the form of a chat request's messages, with what has to stand and what has to leave."""

    facts: tuple[tuple[str, ...], ...]
    void: tuple[str, ...]
    """Wordings of rules that the user replaced."""
    values: Values = field(default_factory=list)

    def user(self, text: str) -> None:
        """Say something as the user."""
        self.values.append({"role": "user", "content": text})

    def assistant(self, text: str) -> None:
        """Say something as the assistant."""
        self.values.append({"role": "assistant", "content": text})

    def step(self, text: str | None, *calls: tuple[str, dict[str, str], str]) -> None:
        """Add the assistant's words with calls, and what each of them returned."""
        place = len(self.values)
        ids = [f"c{place}_{number}" for number in range(len(calls))]
        made = [
            {"id": key, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for key, (name, arguments, _) in zip(ids, calls, strict=True)
        ]
        self.values.append({"role": "assistant", "content": text, "tool_calls": made})
        for key, (_, _, result) in zip(ids, calls, strict=True):
            self.values.append({"role": "tool", "tool_call_id": key, "content": result})


def web_shop() -> Session:
    """A bug in a shop: one long file, a changed mind about rounding, twelve modules that are all alike."""
    session = Session(
        facts=(
            ("SHOP-4711",),
            ("schema", "March 3rd"),
            ("seven digits", "MAX_DIGITS=6", "RiskOverflow"),
            ("can't change risk.check", "PayGuard 2.3.1"),
            ("option 1", "major units"),
            ("round half up", "Not half even."),
            ("tests/test_checkout.py", "12,345.67 EUR"),
            ("src/shop/money.py:17", "precision 28"),
            ("212 passed, 3 skipped",),
            ("`checkout.major_units`", "default off", "src/shop/flags.py"),
            ("Thursday 22:00 CET", "eu-west-3b"),
            ("Tomas",),
            ("Module 11 only", "doesn't touch totals", " times, 0 to 1", "multiplies by 17 without a comment"),
            ("What is left to do before Thursday?",),
        ),
        void=("always round half even",),
    )
    session.values.append({"role": "system", "content": "You are a coding agent in a repository of a web shop."})
    session.user(
        "The checkout endpoint fails in production for orders above 10,000 EUR. Ticket SHOP-4711. Please find out why "
        "and fix it. Don't touch the database schema, the DBA team has frozen it until March 3rd."
    )
    found = (
        "src/shop/checkout.py:88:def checkout(cart, customer, *, currency='EUR'):\n"
        "src/shop/api/v2/orders.py:41:def checkout_order(request):\n"
    )
    session.step("I'll look at the checkout code first.", ("grep", {"pattern": "def checkout", "path": "src/"}, found))
    code = "{0:4} line of code number {0} total = sum(i.price * i.qty for i in cart.items)  # cents"
    lines = "\n".join(code.format(number) for number in range(60, 160))
    session.step(None, ("read", {"path": "src/shop/checkout.py"}, lines))
    session.assistant(
        "The total is computed in cents as an int and then passed to `risk.check(total)`, which parses it with "
        "`Decimal(str(total), MAX_DIGITS=6)`. 10,000 EUR is 1,000,000 cents, which has seven digits, so `risk.check` "
        "raises `RiskOverflow`. That explains the failure for orders above 9,999.99 EUR."
    )
    session.user("Good find. But we can't change risk.check, it's vendored from PayGuard 2.3.1. What are the options?")
    session.assistant(
        "Three options:\n1. Pass euros instead of cents to `risk.check` (needs a Decimal with two places).\n2. Split "
        "the check in two calls.\n3. Wrap `risk.check` in an adapter that scales to hundreds of cents for large "
        "totals.\n\nI would recommend option 1, since PayGuard documents the amount as major units. What do you prefer?"
    )
    session.user(
        "Option 1. And always round half even, finance insists on that. Also add a regression test in "
        "tests/test_checkout.py with 12,345.67 EUR."
    )
    changed = {"path": "src/shop/checkout.py", "old": "risk.check(total)", "new": "risk.check(major_units(total))"}
    test = {"path": "tests/test_checkout.py", "content": "def test_large_order(): ..."}
    session.step("I'll change it.", ("edit", changed, "ok, 1 replacement at line 131"), ("write", test, "ok, 48 bytes"))
    failed = (
        "F...\n=== FAILURES ===\n test_large_order\nE  decimal.InvalidOperation: [<class 'decimal.InvalidOperation'>]\n"
        "src/shop/money.py:17: InvalidOperation\n1 failed, 3 passed in 0.41s"
    )
    session.step(None, ("bash", {"command": "pytest -q tests/test_checkout.py"}, failed))
    session.assistant(
        "The test fails: `decimal.InvalidOperation` in `src/shop/money.py:17`, since the context there has precision "
        "6. I'll use a local context with precision 28."
    )
    context = "with localcontext(Context(prec=28, rounding=ROUND_HALF_EVEN)):"
    session.step(None, ("edit", {"path": "src/shop/money.py", "old": "getcontext().prec = 6", "new": context}, "ok"))
    session.step(None, ("bash", {"command": "pytest -q"}, "212 passed, 3 skipped in 14.20s"))
    session.assistant(
        "All 212 tests pass now (3 skipped). The fix: amounts go to PayGuard in euros with half-even rounding; "
        "`money.py` uses a local decimal context."
    )
    session.user(
        "Great. My name is Tomas by the way, and the deploy window is Thursday 22:00 CET on cluster eu-west-3b. The "
        "feature flag is called `checkout.major_units`, default off. Can you put the change behind it?"
    )
    flag = {"path": "src/shop/flags.py", "old": "FLAGS = {", "new": "FLAGS = {\n  'checkout.major_units': False,"}
    session.step("Yes.", ("edit", flag, "ok"))
    session.assistant(
        "Done: `checkout.major_units` is in `src/shop/flags.py`, default False, and `checkout.py` reads it. With the "
        "flag off the old behaviour stays."
    )
    session.user(
        "Actually, let me change my mind about rounding: finance now says round half up, commercial rounding. Not "
        "half even."
    )
    rounding = {"path": "src/shop/money.py", "old": "ROUND_HALF_EVEN", "new": "ROUND_HALF_UP"}
    session.step("I'll change ROUND_HALF_EVEN to ROUND_HALF_UP.", ("edit", rounding, "ok"))
    session.assistant("Changed to ROUND_HALF_UP in `src/shop/money.py`; tests pass.")
    for place in range(12):
        session.user(
            f"Now look at module number {place}, is there anything about it that could break with large totals?"
        )
        code = f"{{0:4}} def f{place}_{{0}}(x): return x * {{0}} + {place}  # helper for reports and invoices"
        lines = "\n".join(code.format(number) for number in range(1, 60))
        session.step(None, ("read", {"path": f"src/shop/mod{place}.py"}, lines))
        session.assistant(
            f"Module {place} only formats report rows; it doesn't touch totals, so nothing breaks there. One remark: "
            f"`f{place}_17` multiplies by 17 without a comment, which looks like a leftover of the old VAT code."
        )
    session.user("OK. What is left to do before Thursday?")
    return session


PACKAGES = (
    "api", "auth", "balance", "cache", "config", "drain", "health", "limits", "metrics", "pool", "proxy", "retry",
    "tls", "trace",
)  # fmt: skip


def output_of_tests(seed: int, failure: str = "") -> str:
    """Give the output of a test run of the gateway; only the times differ from run to run."""
    lines = [
        f"ok  \tgateway/internal/{name}\t{(seed * 37 + place * 91) % 1900 / 1000:.3f}s"
        for place, name in enumerate(PACKAGES)
        if not (failure and name in failure)
    ]
    return "\n".join([*lines, failure] if failure else lines)


def gateway() -> Session:
    """A service in Go: a build log, and nine test runs that are nearly equal, two of which fail."""
    session = Session(
        facts=(
            ("GW-2217",),
            ("drops connections", "90 seconds"),
            ("internal/legacy", "Falcon"),
            ("internal/pool/pool.go:143",),
            ("620 seconds", "GATEWAY_IDLE_TIMEOUT"),
            ("fmt.Errorf with %w", "No more pkg/errors."),
            ("TestIdleTimeout",),
            ("pool.go:201", "ctx"),
            ("18.4 MB",),
            ("drain_test.go:57", "goroutine leak"),
            ("Ingrid", "on call until Sunday"),
            ("v3.8.2",),
            ("1203 ns/op", "871 ns/op"),
            ("staging in Oslo",),
            ("What should the release note say?",),
        ),
        void=("Please always wrap errors",),
    )
    session.user(
        "The gateway drops connections after about 90 seconds under load, issue GW-2217. Please find the cause. Never "
        "edit anything in internal/legacy, team Falcon owns it."
    )
    hits = "\n".join(f"internal/{name}/{name}.go:{40 + place * 7}:\ttimeout" for place, name in enumerate(PACKAGES))
    session.step("Let me search first.", ("grep", {"pattern": "timeout", "path": "internal"}, hits))
    body = [
        f"{number}\tfunc (p *Pool) step{number}(ctx context.Context) error {{ return p.run(ctx, stage{number}) }}"
        for number in range(90, 240)
    ]
    body[53] = "143\tconst idleTimeout = 90 * time.Second // closes idle connections"
    session.step(None, ("read_file", {"path": "internal/pool/pool.go"}, "\n".join(body)))
    session.step(
        None,
        ("read_file", {"path": "docs/history.md"}, "\n".join(f"Release {n}: small repairs." for n in range(1, 40))),
    )
    session.assistant(
        "The cause is `idleTimeout` in `internal/pool/pool.go:143`: it closes idle connections after 90 s, while the "
        "load balancer keeps them for 600 s."
    )
    session.user(
        "Raise it to 620 seconds, above the balancer's 600, and read it from GATEWAY_IDLE_TIMEOUT. Please always wrap "
        "errors with pkg/errors. I'm Ingrid, by the way, and on call until Sunday."
    )
    edit = {"path": "internal/pool/pool.go", "old": "90 * time.Second", "new": "idleTimeoutFromEnv(620 * time.Second)"}
    session.step("I'll do that.", ("edit_file", edit, "1 replacement"))
    tests = {"command": "go test -race -count=1 ./..."}
    failure = (
        "--- FAIL: TestIdleTimeout (1.52s)\n    pool_test.go:88: idle connection closed after 90s, want 620s\n"
        "FAIL\tgateway/internal/pool\t1.602s\nexit status 1"
    )
    session.step(None, ("shell", tests, output_of_tests(0, failure)))
    session.assistant("`TestIdleTimeout` fails since the test sets its own config. I pass the value through it.")
    session.step(None, ("edit_file", {**edit, "path": "internal/config/config.go"}, "1 replacement"))
    build = [f"[{number}/96] compile internal/{PACKAGES[number % 14]}/part{number}.go" for number in range(1, 97)]
    build.insert(70, "warning: internal/pool/pool.go:201: declaration of ctx shadows an earlier one")
    session.step(None, ("shell", {"command": "make build"}, "\n".join([*build, "built bin/gateway (18.4 MB) in 33 s"])))
    session.assistant("The build works. One warning: `ctx` is shadowed in `pool.go:201`; I leave it.")
    session.user(
        "I changed my mind about wrapping errors: use fmt.Errorf with %w. No more pkg/errors. The release tag is "
        "v3.8.2 and it goes to staging in Oslo first."
    )
    session.step("I'll replace them.", ("shell", {"command": "gofmt -r 'errors.Wrap(a,b) -> wrap(a,b)' -w ."}, ""))
    session.step(None, ("shell", tests, output_of_tests(1)))
    session.assistant("All packages pass.")
    for run in range(2, 9):
        session.user(f"Run the race detector again, round {run}.")
        leak = "--- FAIL: TestDrain (0.31s)\n    drain_test.go:57: goroutine leak: 3 goroutines\nexit status 1"
        session.step(None, ("shell", tests, output_of_tests(run, leak if run == 4 else "")))
        if run == 4:
            session.assistant("Round 4 found a goroutine leak in `drain_test.go:57`: `Drain` never stops its ticker.")
            stop = {"path": "internal/drain/drain.go", "old": "return nil", "new": "ticker.Stop()\n\treturn nil"}
            session.step("I stop it.", ("edit_file", stop, "1 replacement"))
        else:
            session.assistant(f"Round {run} is clean, no race and no leak in any package.")
    bench = "\n".join(
        f"Benchmark{name.title()}-8 \t {1000 + place * 97} ns/op" for place, name in enumerate(PACKAGES) if place != 9
    )
    bench += "\nBenchmarkPool-8 \t 871 ns/op\nPASS"
    session.step("Now the benchmark.", ("shell", {"command": "go test -bench . ./internal/..."}, bench))
    session.assistant("`BenchmarkPool` went from 1203 ns/op to 871 ns/op.")
    session.user("Thanks. What should the release note say?")
    return session


def pipeline() -> Session:
    """A data pipeline: listings, a file that was read and not used, a log of pip, a backfill by days."""
    session = Session(
        facts=(
            ("DATA-381",),
            ("load_orders", "0 rows", "June 3rd"),
            ("s3://lake-prod/raw",),
            ("orders_2026-06-03.parquet", "0 bytes"),
            ("jobs/load_orders.py:52", "timeout"),
            ("47 s",),
            ("config/legacy_mapping.yaml",),
            ("numpy 1.26.4",),
            ("by the hour", "Not by day."),
            ("column `discount`", "2026-05-17"),
            ("Wanjiru",),
            ("40 dollars",),
            ("1,204,118 rows",),
            ("marta@example.org",),
            ("which days are still missing",),
        ),
        void=("Always partition the table by day",),
    )
    session.user(
        "Our nightly job load_orders wrote 0 rows on June 3rd, ticket DATA-381. Please find out why. Don't delete "
        "anything under s3://lake-prod/raw."
    )
    days = [f"2026-{month:02}-{day:02}" for month, last in ((4, 30), (5, 31), (6, 9)) for day in range(1, last + 1)]
    listing = [
        f"-rw-r--r-- 1 etl etl {0 if day == '2026-06-03' else 400_000 + place * 1733 % 9000:>8} {day} 02:00 "
        f"orders_{day}.parquet"
        for place, day in enumerate(days)
    ]
    session.step("I list the exports.", ("run", {"cmd": "ls -l exports/"}, "\n".join(listing)))
    mapping = "\n".join(f"field_{number}: {{from: old_{number}, to: new_{number}, type: text}}" for number in range(80))
    session.step(None, ("open", {"file": "config/legacy_mapping.yaml"}, mapping))
    job = [f"{number}: step_{number} = transform(step_{number - 1}, rules[{number}])" for number in range(1, 120)]
    job[51] = "52: export = fetch(EXPORT_URL, timeout=30)"
    session.step(None, ("open", {"file": "jobs/load_orders.py"}, "\n".join(job)))
    session.assistant(
        "`orders_2026-06-03.parquet` has 0 bytes. The job fetches the export with a timeout of 30 s "
        "(`jobs/load_orders.py:52`), and the export took 47 s that night. The error was swallowed."
    )
    session.user(
        "I see. Set the timeout to 300 s and let it raise. Always partition the table by day, in UTC. My name is "
        "Wanjiru, and the backfill may cost 40 dollars at most."
    )
    session.step(
        None,
        ("patch", {"file": "jobs/load_orders.py", "diff": "-timeout=30\n+timeout=300"}, "patched, 1 hunk"),
        ("run", {"cmd": "pip install -r requirements.txt"}, _pip_log()),
    )
    session.assistant("pip took numpy 2.0.1, which duckdb's extension refuses. I pin numpy 1.26.4.")
    session.step(None, ("run", {"cmd": "pip install numpy==1.26.4"}, "Successfully installed numpy-1.26.4"))
    session.user(
        "Change of plan for the partitions: the table is partitioned by the hour, still in UTC. Not by day. When the "
        "backfill is through, write to marta@example.org."
    )
    session.step(
        None, ("patch", {"file": "sql/orders.sql", "diff": "-PARTITION BY day\n+PARTITION BY hour"}, "patched")
    )
    for day in range(10, 22):
        date = f"2026-05-{day}"
        log = [f"{date} 02:{minute:02}:11 INFO chunk {minute} of 40 written" for minute in range(1, 41)]
        if day == 17:
            log = [*log[:22], f"{date} 02:23:11 ERROR schema mismatch in column discount: float, not decimal", "exit 2"]
        session.step(f"Backfilling {date}.", ("run", {"cmd": f"python -m jobs.backfill --day {date}"}, "\n".join(log)))
    session.assistant(
        "All days but one are in, 1,204,118 rows. 2026-05-17 failed: column `discount` is a float there and no decimal."
    )
    session.user("Good. Say which days are still missing, and what the fix would be.")
    return session


def _pip_log() -> str:
    lines: list[str] = []
    for name, version, size in (
        ("duckdb", "1.0.0", "18.5"), ("numpy", "2.0.1", "19.5"), ("pandas", "2.2.2", "13.0"),
        ("pyarrow", "16.1.0", "40.8"), ("pytz", "2024.1", "0.5"), ("requests", "2.32.3", "0.1"),
        ("s3fs", "2024.6.1", "0.1"), ("tqdm", "4.66.4", "0.1"), ("tzdata", "2024.1", "0.3"),
    ):  # fmt: skip
        wheel = f"{name}-{version}-cp311-cp311-manylinux_2_17_x86_64.whl"
        lines += [
            f"Collecting {name}=={version} (from -r requirements.txt)",
            f"  Downloading {wheel} ({size} MB)",
            f"     ---------------------------------------- {size}/{size} MB 24.1 MB/s eta 0:00:00",
        ]
    lines += [
        "Installing collected packages: pytz, tzdata, tqdm, requests, numpy, duckdb, pyarrow, pandas, s3fs",
        "ERROR: duckdb-spatial 0.9 requires numpy<2, but you have numpy 2.0.1 which is incompatible.",
        "Successfully installed duckdb-1.0.0 numpy-2.0.1 pandas-2.2.2 pyarrow-16.1.0 s3fs-2024.6.1",
    ]
    return "\n".join(lines)
