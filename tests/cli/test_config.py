"""`weir config`: the settings in effect, a new file, and schemas."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import jsonschema
import msgspec
import pytest
from click.testing import CliRunner, Result

from tests.deploy.exposition import ROOT
from weir.cli.exits import DONE, USAGE
from weir.cli.main import weir
from weir.cli.settings.sections import ESSENTIAL
from weir.proxy.config import config
from weir.proxy.config.settings import Settings

DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Settings)}


def run(*arguments: str, environment: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(weir, ["config", *arguments], env=environment)


def uncommented(text: str) -> dict[str, object]:
    return tomllib.loads(re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE))


def test_a_new_configuration_is_accepted_by_check(tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_text(run("--new").stdout)
    assert CliRunner().invoke(weir, ["check", "--config", str(file)]).exit_code == DONE
    assert config.load(file, {}).settings == config.load(None, {"upstream": "localhost:9092"}).settings
    assert uncommented(file.read_text()).keys() == DEFAULTS.keys() & ESSENTIAL


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (("--new", "--json"), "--new and --json exclude each other"),
        (("--schema", "config", "--json"), "--schema and --json exclude each other"),
        (("--all",), "--all needs --new"),
    ],
)
def test_config_ignores_no_option(options: tuple[str, ...], wrong: str) -> None:
    result = run(*options)
    assert (result.exit_code, result.stdout) == (USAGE, "")
    assert wrong in result.stderr


def test_config_names_the_source_of_each_setting(tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_text('upstream = "a:1"\nquotas = "q.toml"\ndrain_timeout_s = "2m"\nlisten = ":1"\n')
    environment = {"WEIR_REFRESH_S": "5s", "WEIR_LISTEN": ":9092"}
    result = run("--config", str(file), "--json", environment=environment)
    assert result.exit_code == DONE, result.output
    shown = json.loads(result.stdout)["settings"]
    assert shown.keys() == DEFAULTS.keys()
    assert shown["listen"] == {"value": ":9092", "source": "environment (WEIR_LISTEN)"}
    assert shown["refresh_s"] == {"value": 5.0, "source": "environment (WEIR_REFRESH_S)"}
    assert shown["quotas"] == {"value": str(tmp_path / "q.toml"), "source": "file"}
    assert shown["drain_timeout_s"] == {"value": 120.0, "source": "file"}
    assert shown["uplift"] == {"value": True, "source": "default"}


def test_config_prints_toml_without_secrets(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("hunter2")
    login = {"MECHANISM": "PLAIN", "USERNAME": "weir", "PASSWORD_FILE": str(password)}
    environment = {f"WEIR_UPSTREAM_SASL_{key}": value for key, value in login.items()}
    result = run(environment={"WEIR_UPSTREAM": "a:1", **environment})
    assert result.exit_code == DONE, result.output
    assert "hunter2" not in result.output
    assert tomllib.loads(result.stdout)["upstream_sasl_password_file"] == str(password)


def test_schemas_for_editors_take_the_shipped_files_and_refuse_mistakes() -> None:
    (config, quotas) = (json.loads(run("--schema", name).stdout) for name in ("config", "quotas"))
    deploy = ROOT / "deploy" / "config"
    every = uncommented(run("--new", "--all").stdout)
    assert set(every) == set(config["properties"])
    jsonschema.validate(every, config)
    for schema, text in (
        (config, 'frame_bytes_max = "64MiB"\nworkers = "auto"'),
        (config, (deploy / "weir.toml").read_text("utf-8")),
        (quotas, (deploy / "quotas.toml").read_text("utf-8")),
        (quotas, '[[replication]]\nbroker = 1\nleader.replication.throttled.rate = "10MB"'),
    ):
        jsonschema.validate(tomllib.loads(text), schema)
    for schema, text in (
        (config, "lissen = ':9092'"),
        (config, "connections_max = 0"),
        (config, "quota_mode = 'shadows'"),
        (quotas, "[[quotas]]"),
        (quotas, "[[quota]]\nproducer_byte_rate = 0"),
        (quotas, "[[quota]]\nmode = 'shadows'"),
        (quotas, "[[group]]\nname = 'payments'\nusers = 'alice'"),
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(tomllib.loads(text), schema)
