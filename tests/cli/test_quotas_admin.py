"""`weir quotas set`, `list` and `delete` with `--admin`: a running Weir reads and changes its quotas."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio

from tests.admin.stage import Stage, play_with
from tests.cli.quotas_command import done, failed, run
from tests.kfake.cluster import HOST

FILE = (
    '[[quota]]\nuser = "alice"\nproducer_byte_rate = 1000\n'
    '[[group]]\nname = "data"\n[[group]]\nname = "etl"\nusers = ["bob", "s-*"]\nparent = "data"\n'
)


def test_a_running_weir_sets_lists_and_deletes_all_that_a_quota_has(tmp_path: Path) -> None:
    file, token = tmp_path / "quotas.toml", tmp_path / "token"
    file.write_text(FILE)
    token.write_text("0123456789abcdef-token\n")

    async def script(stage: Stage) -> None:
        async def weir(command: str, *arguments: str, exit_code: int = 0) -> str:
            argv = (command, "--admin", f"{HOST}:{stage.admin}", *arguments)
            return await trio.to_thread.run_sync(
                lambda: failed(exit_code, *argv) if exit_code else done(*argv)
            )

        access, prefix = ("--admin-token-file", str(token)), ("--client-id-prefix", "etl-", "--shadow")
        options = ("--pacing", "smooth", "--scope", "cluster", "--until", "2999-01-01T00:00:00Z")
        assert "token" in await weir("set", "--topic", "logs", "producer_byte_rate=7", exit_code=2)
        assert file.read_text() == FILE
        said = await weir("set", *access, *prefix, *options, "consumer_byte_rate=2MB")
        assert said.startswith("client-id prefix etl- (shadow): consumer_byte_rate none -> 2000000")
        for kind, name, key in (
            ("--topic", "logs", "producer_byte_rate"),
            ("--group", "<all>", "request_percentage"),
            ("--ip", "2001:db8::1", "connection_creation_rate"),
            ("--topic-prefix", "logs-", "topics_max"),
        ):
            await weir("set", *access, kind, name, "--until", "2999-12-31T23:59:59Z", f"{key}=7")
        of_alice = ("--user", "alice", "--release")
        said = await weir("set", *access, *of_alice, "producer_byte_rate=1000")
        assert said.endswith("connections released: 0\n")
        alone = partial(run, "set", "--admin", f"{HOST}:{stage.admin}", *access, *of_alice)
        nobody = await trio.to_thread.run_sync(alone)  # the log of the same process is on stderr, too
        assert (nobody.exit_code, "no such connection waits" in nobody.stderr) == (1, True)
        listed = await weir("list")
        assert listed.count("\n") == 11
        assert "shadow, smooth, cluster, until 2999-01-01T00:00:00Z\n" in listed
        assert listed.count("enforce, until 2999-12-31T23:59:59Z\n") == 4
        assert listed == done("list", "--quotas", str(file))
        (exported := tmp_path / "exported.json").write_text(await weir("list", "--json"))
        done("import", str(exported), "--output", str(imported := tmp_path / "imported.toml"))
        assert done("list", "--quotas", str(imported)) == listed
        await weir("set", *access, *prefix, "--scope", "broker", "--until", "never", "consumer_byte_rate=2MB")
        assert 'pacing = "smooth"\nconsumer' in file.read_text()
        await weir("delete", *access, *prefix)
        assert "etl-" not in file.read_text()
        assert "has no shadow quota" in await weir("delete", *access, *prefix, exit_code=1)
        assert (await stage.json("/api/quotas?offset=3&limit=1"))["quotas"][0]["entity"] == {
            "ip": "2001:db8::1"
        }

    play_with(script, file, admin_token_file=str(token))
    assert "is for one --user" in run("set", "--admin", "a:1", "--topic", "t", "--release").stderr
    of_entry = run("set", "--admin", "a:1", "--user", "alice", "--release", "--for", "4h")
    assert "Missing argument" in of_entry.stderr
